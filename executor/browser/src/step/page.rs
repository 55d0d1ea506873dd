//! View of a page: what its frames told, joined and rendered.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::observe::{AxFrame, FrameState, PageState};
use crate::render::content::TreeBlock;
use crate::render::markdown::markdown;
use crate::render::marks_image::{self, ImageError};
use crate::snapshot::ax::AxTree;
use crate::snapshot::element::ElementTable;
use crate::snapshot::marks::{FrameTree, merge};

#[derive(Debug)]
pub struct PageView {
    pub url: String,
    /// PNG of the viewport, RGB.
    pub screenshot: Vec<u8>,
    /// The same with the ids of clickable elements.
    pub marked_screenshot: Vec<u8>,
    pub focused_bid: Option<String>,
    pub tree: TreeBlock,
    /// `axtree_object`, if wanted.
    pub raw_tree: Option<Value>,
    pub elements: ElementTable,
    /// Markdown of the main document.
    pub markdown: String,
}

impl PageView {
    /// Renders a page. Takes milliseconds to hundreds of them, for a large page.
    pub(super) fn render(state: PageState, max_tree_chars: Option<usize>) -> Self {
        let mut elements = ElementTable::default();
        let mut text = String::new();
        for frame in &state.frames {
            let Some(documents) = &frame.documents else {
                continue;
            };
            let owner = elements.get(&frame.frame.prefix);
            let origin = owner.and_then(|owner| owner.bbox);
            let origin = origin.map_or((0.0, 0.0), |[x, y, ..]| (x, y));
            elements.merge(ElementTable::from_snapshot(documents, origin));
            if frame.frame.prefix.is_empty() {
                text = markdown(documents);
            }
        }
        let (tree, raw_tree) = join_trees(state.frames);
        let tree = TreeBlock::new(&tree, &elements, max_tree_chars);
        let (screenshot, marked_screenshot) = match pictures(&state.screenshot, &elements) {
            Ok(pictures) => pictures,
            Err(error) => {
                tracing::warn!(%error, "cannot draw the marks");
                (state.screenshot.clone(), state.screenshot)
            }
        };
        Self {
            url: state.url,
            screenshot,
            marked_screenshot,
            focused_bid: state.focused,
            tree,
            raw_tree,
            elements,
            markdown: text,
        }
    }
}

fn pictures(png: &[u8], elements: &ElementTable) -> Result<(Vec<u8>, Vec<u8>), ImageError> {
    let marked = marks_image::with_marks(png, elements)?;
    Ok((marks_image::rgb(png)?.into_owned(), marked))
}

/// The tree of all frames, and as an object if it was read so.
fn join_trees(frames: Vec<FrameState>) -> (AxTree, Option<Value>) {
    let owners: Vec<_> = frames
        .iter()
        .map(|state| {
            let frame = &state.frame;
            (
                frame.frame.parent.clone(),
                frame.owner,
                frame.frame.id.to_string(),
            )
        })
        .collect();
    let main_session = frames
        .first()
        .map(|state| state.frame.frame.session.id().clone());
    let (mut typed, mut raw) = (Vec::new(), Vec::new());
    let is_raw = frames
        .iter()
        .any(|state| matches!(state.tree, AxFrame::Raw(_)));
    for state in frames {
        let frame = state.frame.frame;
        let children = owners
            .iter()
            .filter(|(parent, ..)| parent.as_ref() == Some(&frame.id));
        let child_frames: HashMap<_, _> = children
            .filter_map(|(_, owner, child)| Some((owner.as_ref().copied()?, child.clone())))
            .collect();
        let is_main = main_session.as_ref() == Some(frame.session.id());
        let id_prefix = if is_main {
            String::new()
        } else {
            format!("{}-", frame.session.id())
        };
        let frame_id = frame.id.to_string();
        match state.tree {
            AxFrame::Typed(tree) => typed.push(FrameTree {
                frame_id,
                id_prefix,
                child_frames,
                nodes: tree.nodes,
            }),
            AxFrame::Raw(mut tree) => raw.push(FrameTree {
                frame_id,
                id_prefix,
                child_frames,
                nodes: match tree.get_mut("nodes").map(Value::take) {
                    Some(Value::Array(nodes)) => nodes,
                    _ => Vec::new(),
                },
            }),
        }
    }
    if is_raw {
        let nodes = merge(raw);
        (AxTree::from_raw(&nodes), Some(json!({"nodes": nodes})))
    } else {
        let nodes = merge(typed);
        (AxTree { nodes }, None)
    }
}
