//! Marks in the accessibility tree: the marking script puts each element's id in front of its ARIA
//! role description and description; here it becomes a field of the node, and the trees of the
//! frames become one tree.

use std::collections::HashMap;

use serde_json::Value;

use super::ax::{AxNode, AxTree, AxValue};

mod raw;

const MARK: &str = "browsergym_id_";
const ROLE_DESCRIPTION: &str = "roledescription";
const IFRAME: &str = "Iframe";

/// Node of an accessibility tree: typed, or raw with all fields for `axtree_object`.
pub trait TreeNode {
    fn id(&self) -> &str;
    fn is_iframe(&self) -> bool;
    fn backend_id(&self) -> Option<i64>;
    /// Moves the id out of the texts into a field of its own. Texts that are empty then go.
    fn take_mark(&mut self);
    fn add_child(&mut self, id: String);
    /// Makes all node ids unlike those of other sessions.
    fn prefix_ids(&mut self, prefix: &str);
}

/// Tree of one frame.
#[derive(Debug)]
pub struct FrameTree<N> {
    pub frame_id: String,
    /// Empty in the session of the main frame: those nodes keep their ids. Other sessions count
    /// from 1 again and need a prefix each.
    pub id_prefix: String,
    /// Child frames by the backend node id of their owner elements in this frame.
    pub child_frames: HashMap<i64, String>,
    pub nodes: Vec<N>,
}

/// Takes the marks and joins the trees: roots of child frames become children of `Iframe` nodes.
/// The main frame must be the first.
pub fn merge<N: TreeNode>(mut frames: Vec<FrameTree<N>>) -> Vec<N> {
    for frame in &mut frames {
        for node in &mut frame.nodes {
            node.take_mark();
            if !frame.id_prefix.is_empty() {
                node.prefix_ids(&frame.id_prefix);
            }
        }
    }
    let roots = frames.iter().filter_map(|frame| {
        let root = frame.nodes.first()?;
        Some((frame.frame_id.clone(), root.id().to_owned()))
    });
    let roots: HashMap<_, _> = roots.collect();
    for frame in &mut frames {
        for node in frame.nodes.iter_mut().filter(|node| node.is_iframe()) {
            let child = node.backend_id().and_then(|id| frame.child_frames.get(&id));
            if let Some(root) = child.and_then(|frame| roots.get(frame)) {
                node.add_child(root.clone());
            }
        }
    }
    frames.into_iter().flat_map(|frame| frame.nodes).collect()
}

impl AxTree {
    /// Reads raw nodes after [`merge`]. Malformed ones are left out.
    pub fn from_raw(nodes: &[Value]) -> Self {
        use serde::Deserialize as _;
        let nodes = nodes
            .iter()
            .filter_map(|node| AxNode::deserialize(node).ok());
        Self {
            nodes: nodes.collect(),
        }
    }
}

impl TreeNode for AxNode {
    fn id(&self) -> &str {
        &self.node_id
    }

    fn is_iframe(&self) -> bool {
        self.role.as_ref().and_then(AxValue::as_str) == Some(IFRAME)
    }

    fn backend_id(&self) -> Option<i64> {
        self.backend_dom_node_id
    }

    fn take_mark(&mut self) {
        let mut properties = self.properties.iter_mut();
        let role = properties.position(|property| property.name == ROLE_DESCRIPTION);
        if let Some(at) = role {
            let text = self.properties[at].value.value.as_mut();
            let taken = text.and_then(take_mark);
            if taken.as_ref().is_some_and(|taken| taken.is_empty) {
                self.properties.remove(at);
            }
            self.bid = taken.and_then(|taken| taken.bid);
        }
        let text = self
            .description
            .as_mut()
            .and_then(|text| text.value.as_mut());
        let taken = text.and_then(take_mark);
        if taken.as_ref().is_some_and(|taken| taken.is_empty) {
            self.description = None;
        }
        let bid = taken.and_then(|taken| taken.bid);
        self.bid = self.bid.take().or(bid);
    }

    fn add_child(&mut self, id: String) {
        self.child_ids.push(id);
    }

    fn prefix_ids(&mut self, prefix: &str) {
        self.node_id.insert_str(0, prefix);
        for id in &mut self.child_ids {
            id.insert_str(0, prefix);
        }
    }
}

struct TakenMark {
    bid: Option<String>,
    /// True if no text is left.
    is_empty: bool,
}

/// Cuts `browsergym_id_«bid» ` off the beginning of a text. `None` if the value is no text.
fn take_mark(value: &mut Value) -> Option<TakenMark> {
    let Value::String(text) = value else {
        return None;
    };
    let mut bid = None;
    if let Some(rest) = text.strip_prefix(MARK) {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let (id, rest) = rest.split_at(end);
        if !id.is_empty() {
            bid = Some(id.to_owned());
            // Chromium drops the space if no text follows.
            *text = rest
                .strip_prefix(char::is_whitespace)
                .unwrap_or(rest)
                .to_owned();
        }
    }
    Some(TakenMark {
        bid,
        is_empty: text.is_empty(),
    })
}
