//! Observation of a page: `extras` and `content` (`docs/specs/browser.md`, sections 1.2 and 1.3).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use browser::render::content::{ProgramContent, TreeBlock, VisitContent};
use browser::snapshot::element::ElementTable;
use browser::step::Step;
use serde::Serialize;
use serde_json::{Value, json};

use super::BrowseKind;

/// A step that was performed.
#[derive(Debug)]
pub(in crate::serve) struct Page {
    pub(super) step: Step,
    pub(super) screenshot_path: Option<String>,
    /// Sentences about what was lost since the last step.
    pub(super) notices: Vec<String>,
}

/// Fields in the order of the Python server. Clients reject missing and additional ones.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct PageExtras {
    pub(in crate::serve) url: String,
    trigger_by_action: &'static str,
    screenshot: String,
    screenshot_path: Option<String>,
    set_of_marks: String,
    error: bool,
    goal_image_urls: [String; 0],
    open_pages_urls: Vec<String>,
    active_page_index: i64,
    dom_object: Value,
    axtree_object: Value,
    extra_element_properties: Value,
    last_browser_action: String,
    last_browser_action_error: String,
    focused_element_bid: Option<String>,
    filter_visible_only: bool,
}

impl BrowseKind {
    fn action(&self) -> &'static str {
        match self {
            Self::Url(_) => "browse",
            Self::Program(_) => "browse_interactive",
        }
    }
}

impl Page {
    /// Text of the error that ended the program, and of what was lost before it.
    fn error(&self) -> String {
        let error = self.step.error.iter().map(ToString::to_string);
        let texts: Vec<_> = error.chain(self.notices.iter().cloned()).collect();
        texts.join("\n")
    }

    /// Content and extras of the observation.
    pub(in crate::serve) fn into_observation(self, kind: &BrowseKind) -> (String, PageExtras) {
        let error = self.error();
        let Self {
            step,
            screenshot_path,
            ..
        } = self;
        let page = step.page;
        let shown = Some(error.as_str()).filter(|error| !error.is_empty());
        let content = match kind {
            BrowseKind::Url(_) => VisitContent {
                url: &page.url,
                error: shown,
                page: &page.markdown,
            }
            .to_string(),
            BrowseKind::Program(_) => ProgramContent {
                url: &page.url,
                focused_bid: page.focused_bid.as_deref(),
                screenshot_path: screenshot_path.as_deref(),
                error: shown,
                tree: &page.tree,
            }
            .to_string(),
        };
        let (tree, elements) = match page.raw_tree {
            Some(tree) => (tree, json!(page.elements)),
            None => (json!({}), json!({})),
        };
        let extras = PageExtras {
            url: page.url,
            trigger_by_action: kind.action(),
            screenshot: data_url(&page.screenshot),
            screenshot_path,
            set_of_marks: data_url(&page.marked_screenshot),
            error: !error.is_empty(),
            goal_image_urls: [],
            open_pages_urls: step.open_pages_urls,
            active_page_index: i64::try_from(step.active_page_index).unwrap_or(-1),
            dom_object: json!({}),
            axtree_object: tree,
            extra_element_properties: elements,
            last_browser_action: step.program,
            last_browser_action_error: error,
            focused_element_bid: page.focused_bid,
            filter_visible_only: false,
        };
        (content, extras)
    }
}

/// Observation of a step that failed as a whole: there is no page.
pub(in crate::serve) fn failed(kind: &BrowseKind, error: String) -> (String, PageExtras) {
    let url = match kind {
        BrowseKind::Url(url) => url.clone(),
        BrowseKind::Program(_) => String::new(),
    };
    let content = match kind {
        BrowseKind::Url(_) => VisitContent {
            url: &url,
            error: Some(&error),
            page: &error,
        }
        .to_string(),
        BrowseKind::Program(_) => ProgramContent {
            url: &url,
            focused_bid: Some(""),
            screenshot_path: None,
            error: Some(&error),
            tree: &TreeBlock::new(
                &browser::snapshot::ax::AxTree::default(),
                &ElementTable::default(),
                None,
            ),
        }
        .to_string(),
    };
    let extras = PageExtras {
        url,
        error: true,
        last_browser_action_error: error,
        ..PageExtras::without_page(kind)
    };
    (content, extras)
}

/// Observation of a program that asks for the goal or the rewards of a benchmark (section 1.5).
/// There is none, which a Python server without one tells in the same way.
pub(in crate::serve) fn evaluation(kind: &BrowseKind) -> Option<(String, PageExtras)> {
    let BrowseKind::Program(program) = kind else {
        return None;
    };
    let content = match program.as_str() {
        "GET_EVAL_GOAL" => "",
        "GET_EVAL_REWARDS" => "[]",
        _ => return None,
    };
    Some((content.to_owned(), PageExtras::without_page(kind)))
}

impl PageExtras {
    fn without_page(kind: &BrowseKind) -> Self {
        Self {
            url: String::new(),
            trigger_by_action: kind.action(),
            screenshot: String::new(),
            screenshot_path: None,
            set_of_marks: String::new(),
            error: false,
            goal_image_urls: [],
            open_pages_urls: Vec::new(),
            active_page_index: -1,
            dom_object: json!({}),
            axtree_object: json!({}),
            extra_element_properties: json!({}),
            last_browser_action: String::new(),
            last_browser_action_error: String::new(),
            focused_element_bid: Some(String::new()),
            filter_visible_only: false,
        }
    }
}

fn data_url(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(png))
}
