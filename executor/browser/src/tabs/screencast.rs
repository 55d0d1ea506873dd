//! Pictures of the active tab while it is watched: the latest one only, acknowledged as they are
//! taken, so that a slow viewer slows the browser's pictures down and nothing queues (section 6.1).

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::{Tabs, TargetId, VIEWPORT};
use crate::cdp::{Session, SessionId};

/// Quality of the JPEG pictures, of 100.
const QUALITY: u32 = 70;
/// Viewers at a time.
const MAX_VIEWERS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Screencast {
    latest: watch::Sender<Option<Arc<Picture>>>,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    viewers: usize,
    session: Option<Session>,
}

#[derive(Debug)]
pub struct Picture {
    pub jpeg: Vec<u8>,
    session: SessionId,
    number: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScreencastFrame {
    data: String,
    session_id: i64,
}

/// A viewer; the pictures end with the last one.
#[derive(Debug)]
pub struct Viewer {
    pub(super) tabs: Tabs,
    latest: watch::Receiver<Option<Arc<Picture>>>,
    pub(super) tab: Option<TargetId>,
}

impl Screencast {
    pub(super) fn received(&self, session: &SessionId, params: &RawValue) {
        let Ok(frame) = serde_json::from_str::<ScreencastFrame>(params.get()) else {
            return;
        };
        if let Ok(jpeg) = BASE64_STANDARD.decode(frame.data) {
            self.latest.send_replace(Some(Arc::new(Picture {
                jpeg,
                session: session.clone(),
                number: frame.session_id,
            })));
        }
    }
}

impl Tabs {
    /// A new viewer; `None` if there are too many.
    pub fn view(&self) -> Option<Viewer> {
        let screencast = &self.shared.screencast;
        let mut running = screencast.running.lock();
        if running.viewers >= MAX_VIEWERS {
            return None;
        }
        running.viewers += 1;
        let mut latest = screencast.latest.subscribe();
        // A page that does not change sends no other picture.
        if running.session.is_some() && latest.borrow().is_some() {
            latest.mark_changed();
        }
        Some(Viewer {
            tabs: self.clone(),
            latest,
            tab: None,
        })
    }
}

impl Viewer {
    /// Follows the active tab. Call before each picture.
    pub fn follow(&mut self) -> Option<super::Tab> {
        let active = self.tabs.active()?;
        let mut running = self.tabs.shared.screencast.running.lock();
        let is_running = running
            .session
            .as_ref()
            .is_some_and(|session| session.id() == active.session.id());
        if !is_running {
            if let Some(before) = running.session.take() {
                before.send("Page.stopScreencast", json!({}));
            }
            active.session.send("Page.bringToFront", json!({}));
            active.session.send(
                "Page.startScreencast",
                json!({
                    "format": "jpeg",
                    "quality": QUALITY,
                    "maxWidth": VIEWPORT.0,
                    "maxHeight": VIEWPORT.1,
                }),
            );
            running.session = Some(active.session.clone());
        }
        self.tab = Some(active.id.clone());
        Some(active)
    }

    /// The next picture; `None` once the browser has ended.
    pub async fn next(&mut self) -> Option<Arc<Picture>> {
        tokio::select! {
            changed = self.latest.changed() => changed.ok()?,
            () = self.tabs.connection.closed() => return None,
        }
        let picture = self.latest.borrow_and_update().clone()?;
        let session = self.tabs.connection.session(picture.session.clone());
        session.send(
            "Page.screencastFrameAck",
            json!({"sessionId": picture.number}),
        );
        Some(picture)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut running = self.tabs.shared.screencast.running.lock();
        running.viewers -= 1;
        if running.viewers == 0
            && let Some(session) = running.session.take()
        {
            session.send("Page.stopScreencast", json!({}));
        }
    }
}
