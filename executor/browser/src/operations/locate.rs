//! Finds the element that an id names, frame by frame (section 2.5). A document may be replaced
//! meanwhile, after which the search begins again.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::bid::{Bid, frame_locator};
use super::page::{Deadline, Page};
use super::scripts;
use crate::tabs::{Element, FrameId, ScriptError, ScriptWorld};

/// Waits before an element is looked for again, in milliseconds; the last one repeats.
const DELAYS: [u64; 4] = [0, 20, 50, 100];

/// An element, and those that hold the frames on the way to it, from the outermost.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) element: Element,
    pub(super) owners: Vec<Element>,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.element.release();
        self.owners.iter().for_each(Element::release);
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LocateError {
    #[error("there is no such element")]
    Missing,
    /// Several elements have the id: the rest of a sentence that begins with the locator.
    #[error("{locator} {text}")]
    Ambiguous { locator: String, text: String },
    /// An element that should hold a frame holds none.
    #[error("<iframe> was expected at {bid}")]
    NotFrame { bid: String, preview: String },
    #[error(transparent)]
    Script(#[from] ScriptError),
}

impl LocateError {
    /// False if the element may be found in a moment.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Missing => false,
            Self::Script(error) => !error.is_transient(),
            Self::Ambiguous { .. } | Self::NotFrame { .. } => true,
        }
    }
}

impl Page {
    /// Looks for an element until it is found, the time is up, or an error `counts`.
    pub(super) async fn locate_soon(
        &self,
        bid: &Bid<'_>,
        deadline: Deadline,
        counts: fn(&LocateError) -> bool,
    ) -> Result<Target, LocateError> {
        let mut tries = 0;
        loop {
            match self.locate(bid, deadline).await {
                Err(error)
                    if !error.is_final()
                        && !counts(&error)
                        && !deadline.has_passed()
                        && !self.is_gone() =>
                {
                    deadline.pause(&DELAYS, tries).await;
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    async fn locate(&self, bid: &Bid<'_>, deadline: Deadline) -> Result<Target, LocateError> {
        let mut frame = self.tab.main_frame();
        let mut owners = Vec::new();
        for owner_bid in &bid.frames {
            let locator = || frame_locator(owner_bid);
            let owner = self.find_in(&frame, owner_bid, locator, deadline).await?;
            let content = content_frame(&owner, deadline.call_limit()).await?;
            owners.push(owner.clone());
            frame = match content {
                Some(frame) => frame,
                None => return Err(not_frame(owner_bid, &owner, deadline).await),
            };
        }
        let locator = || format!("get_by_test_id(\"{}\")", bid.element);
        let element = self.find_in(&frame, bid.element, locator, deadline).await?;
        Ok(Target { element, owners })
    }

    async fn find_in(
        &self,
        frame: &FrameId,
        bid: &str,
        locator: impl FnOnce() -> String,
        deadline: Deadline,
    ) -> Result<Element, LocateError> {
        let frames = self.tabs.frames(&self.tab.id);
        let frame = frames.iter().find(|known| known.id == *frame);
        let frame = frame.ok_or(ScriptError::Gone)?;
        let context = self.tabs.script_frame(frame, ScriptWorld::Isolated);
        let context = tokio::time::timeout(deadline.call_limit(), context);
        let context = context.await.map_err(|_| ScriptError::Gone)??;
        let (find, describe) = ([json!(bid), json!(false)], [json!(bid), json!(true)]);
        let finding = context.find(deadline.call_limit(), scripts::FIND_ELEMENT, &find);
        if let Some(element) = finding.await? {
            return Ok(element);
        }
        let describing = context.call(deadline.call_limit(), scripts::FIND_ELEMENT, &describe);
        Err(match describing.await? {
            Some(text) => LocateError::Ambiguous {
                locator: locator(),
                text,
            },
            None => LocateError::Missing,
        })
    }
}

/// Frame in an element, also one of another process.
async fn content_frame(owner: &Element, limit: Duration) -> Result<Option<FrameId>, ScriptError> {
    #[derive(Deserialize)]
    struct Described {
        node: Node,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Node {
        frame_id: Option<String>,
        node_name: String,
    }
    let params = json!({"objectId": owner.object_id});
    let calling = owner
        .session
        .call_within::<Described>(limit, "DOM.describeNode", params);
    let node = calling.await?.node;
    let holds_frame = ["IFRAME", "FRAME"].contains(&node.node_name.as_str());
    Ok(node
        .frame_id
        .filter(|_| holds_frame)
        .map(|id| FrameId::from(id.as_str())))
}

async fn not_frame(bid: &str, element: &Element, deadline: Deadline) -> LocateError {
    let preview = element.call(deadline.call_limit(), scripts::PREVIEW, &[]);
    LocateError::NotFrame {
        bid: bid.to_owned(),
        preview: preview.await.unwrap_or_default(),
    }
}
