//! Marks the frames of a tab with ids, parents first (section 2.5).

use std::time::Duration;

use futures::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ObserveError, SCRIPT_TIMEOUT};
use crate::cdp::CdpError;
use crate::tabs::{Frame, ScriptError, ScriptFrame, ScriptWorld, Tab, Tabs};

/// Tries to mark a document that is replaced meanwhile.
const MAX_TRIES: usize = 5;
const RETRY_DELAY: Duration = Duration::from_millis(100);
/// Depth of frames in frames.
const MAX_DEPTH: usize = 16;

/// A frame that is observed.
#[derive(Debug)]
pub struct MarkedFrame {
    pub frame: Frame,
    /// Id of the `iframe` or `frame` that contains the frame, which begins all ids in it; empty
    /// without one.
    pub prefix: String,
    /// Backend node id of that element, in the session of the parent.
    pub owner: Option<i64>,
    /// Context of the document. `None` if it has no marks: its text is read all the same.
    script: Option<ScriptFrame>,
}

/// Marks all frames. Those that forbid scripts, and documents of `object` and `embed`, get no marks.
/// Fails if the page does not respond.
pub(super) async fn mark(tabs: &Tabs, tab: &Tab) -> Result<Vec<MarkedFrame>, ObserveError> {
    let mut tries = 1;
    let main = loop {
        let main = tabs
            .frames(&tab.id)
            .into_iter()
            .find(|frame| frame.parent.is_none());
        let main = main.ok_or(CdpError::Closed)?;
        let main = MarkedFrame {
            frame: main,
            prefix: String::new(),
            owner: None,
            script: None,
        };
        match run_script(tabs, &main).await {
            Ok(script) => {
                let script = Some(script);
                break MarkedFrame { script, ..main };
            }
            Err(ScriptError::Browser(CdpError::Timeout(_))) => return Err(ObserveError::Hung),
            Err(error) if error.is_transient() && tries < MAX_TRIES => {
                tries += 1;
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(ScriptError::Browser(error)) => return Err(error.into()),
            // An observation without ids is better than none.
            Err(error) => {
                tracing::warn!(%error, "a page has no marks");
                break main;
            }
        }
    };
    let mut marked = vec![main];
    let mut level = 0..1;
    for _ in 0..MAX_DEPTH {
        let parents = &marked[level.clone()];
        let children = tabs.frames(&tab.id).into_iter().filter_map(|frame| {
            let parent = parents
                .iter()
                .find(|parent| Some(&parent.frame.id) == frame.parent.as_ref());
            parent.map(|parent| mark_child(tabs, parent, frame))
        });
        let children: Vec<_> = join_all(children).await.into_iter().flatten().collect();
        level = marked.len()..marked.len() + children.len();
        if level.is_empty() {
            break;
        }
        marked.extend(children);
    }
    Ok(marked)
}

/// Marks a frame. `None` if its owner is gone.
async fn mark_child(tabs: &Tabs, parent: &MarkedFrame, frame: Frame) -> Option<MarkedFrame> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Owner {
        backend_node_id: i64,
    }
    #[derive(Deserialize)]
    struct Described {
        node: Node,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Node {
        node_name: String,
        #[serde(default)]
        attributes: Vec<String>,
    }
    let session = &parent.frame.session;
    let owner: Owner = session
        .call("DOM.getFrameOwner", json!({"frameId": frame.id}))
        .await
        .ok()?;
    let params = json!({"backendNodeId": owner.backend_node_id});
    let described: Described = session.call("DOM.describeNode", params).await.ok()?;
    let attribute = |name: &str| {
        let pairs = described.node.attributes.as_chunks::<2>().0;
        pairs
            .iter()
            .find(|[found, _]| found == name)
            .map(|[_, value]| value)
    };
    let prefix = attribute("data-sandbox-bid").or_else(|| attribute("bid"));
    let sandbox = attribute("sandbox");
    let runs_scripts =
        sandbox.is_none_or(|allowed| allowed.split_whitespace().any(|one| one == "allow-scripts"));
    // Ids of elements in other owners could not be told from those beside them.
    let is_frame = ["IFRAME", "FRAME"].contains(&&*described.node.node_name);
    let unmarked = MarkedFrame {
        frame,
        prefix: prefix.filter(|_| is_frame).cloned().unwrap_or_default(),
        owner: Some(owner.backend_node_id),
        script: None,
    };
    if !runs_scripts || !is_frame || prefix.is_none() || parent.script.is_none() {
        return Some(unmarked);
    }
    let marked = run_script(tabs, &unmarked).await;
    let script = marked
        .inspect_err(|error| tracing::debug!(%error, "a frame has no marks"))
        .ok();
    Some(MarkedFrame { script, ..unmarked })
}

async fn run_script(tabs: &Tabs, frame: &MarkedFrame) -> Result<ScriptFrame, ScriptError> {
    let page = tabs.script_frame(&frame.frame, ScriptWorld::Main).await?;
    let function = include_str!("../page_scripts/find_handlers.js");
    match page.call::<Value>(SCRIPT_TIMEOUT, function, &[]).await {
        Ok(_) | Err(ScriptError::Exception(_)) => {}
        Err(error) => return Err(error),
    }
    let isolated = tabs.script_frame(&frame.frame, ScriptWorld::Isolated);
    let script = isolated.await?;
    let function = include_str!("../page_scripts/mark.js");
    let _name: String = script
        .call(SCRIPT_TIMEOUT, function, &[json!(frame.prefix)])
        .await?;
    Ok(script)
}

pub(super) async fn unmark(marked: &[MarkedFrame]) {
    let function = include_str!("../page_scripts/unmark.js");
    let scripts = marked.iter().filter_map(|frame| frame.script.as_ref());
    let unmarking = scripts.map(|script| async move {
        // A document that is gone has no marks.
        let done: Result<Value, _> = script.call(SCRIPT_TIMEOUT, function, &[]).await;
        drop(done);
    });
    join_all(unmarking).await;
}

/// Id of the focused element, in the frame that has the focus.
pub(super) async fn focused(marked: &[MarkedFrame]) -> Option<String> {
    let function = include_str!("../page_scripts/focused.js");
    let mut prefix = String::new();
    loop {
        let frame = marked.iter().find(|frame| frame.prefix == prefix)?;
        // Without marks no element in it has an id.
        let found: Option<String> = frame
            .script
            .as_ref()?
            .call(SCRIPT_TIMEOUT, function, &[])
            .await
            .ok()?;
        match found {
            // An owner: its frame is deeper, so this ends.
            Some(id)
                if id.len() > prefix.len() && marked.iter().any(|frame| frame.prefix == id) =>
            {
                prefix = id;
            }
            found => return found,
        }
    }
}
