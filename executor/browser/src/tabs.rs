//! Tabs and frames of the browser, as its events tell: the one place that knows which sessions,
//! documents and script contexts exist. Everything else asks here, or waits for a change here.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;

use crate::cdp::{CdpError, Connection, Pipe, Session};

mod download;
mod event_types;
mod events;
mod frame;
mod navigation;
mod relay;
mod screencast;
mod script;
mod setup;
mod state;
mod viewer_input;

pub use self::download::Download;
pub use self::frame::{Frame, FrameId};
pub use self::relay::{CommandError, Relay, RelayError};
pub use self::screencast::{Picture, Viewer};
pub use self::script::{Element, ScriptError, ScriptFrame, ScriptWorld};
use self::state::TabsState;
pub use self::state::{FileChooser, Tab, TargetId};
pub use self::viewer_input::{KeyKind, MouseButton, MouseKind, ViewerInput};

/// Size of the viewport in CSS pixels; the device scale is 1.
pub const VIEWPORT: (u32, u32) = (1280, 720);

/// Names and versions of a browser, in its own words.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub product: String,
    pub protocol_version: String,
    pub user_agent: String,
    pub js_version: String,
}

#[derive(Clone, Debug)]
pub struct Tabs {
    shared: Arc<Shared>,
    connection: Connection,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<TabsState>,
    relays: relay::Relays,
    screencast: screencast::Screencast,
    /// Number of changes, for those who wait.
    changes: watch::Sender<u64>,
}

impl Tabs {
    /// Connects to a browser that has just started. Downloads are saved below `downloads`.
    pub async fn connect(pipe: Pipe, downloads: &std::path::Path) -> Result<Self, CdpError> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            relays: relay::Relays::default(),
            screencast: screencast::Screencast::default(),
            changes: watch::Sender::default(),
        });
        let connection = Connection::open(pipe, Arc::clone(&shared) as _).map_err(|error| {
            tracing::warn!(%error, "cannot open the pipe to the browser");
            CdpError::Closed
        })?;
        shared.state.lock().connection = Some(connection.clone());
        let tabs = Self { shared, connection };
        let root = tabs.root();
        root.send("Target.setDiscoverTargets", json!({"discover": true}));
        root.send(
            "Browser.setDownloadBehavior",
            json!({"behavior": "allowAndName", "downloadPath": downloads, "eventsEnabled": true}),
        );
        setup::auto_attach(&root);
        root.call::<IgnoredAny>("Browser.getVersion", json!({}))
            .await?;
        Ok(tabs)
    }

    /// Session of the browser itself.
    pub fn root(&self) -> Session {
        self.connection.root()
    }

    pub async fn version(&self) -> Result<Version, CdpError> {
        self.root().call("Browser.getVersion", json!({})).await
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Opens a tab and makes it the active one.
    pub async fn open(&self, url: &str) -> Result<Tab, CdpError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            target_id: String,
        }
        let params = json!({"url": url});
        let created: Created = self.root().call("Target.createTarget", params).await?;
        let id = TargetId::from(created.target_id.as_str());
        let found = self
            .wait(crate::cdp::CALL_TIMEOUT, |state| state.tab(&id))
            .await;
        let tab = found.ok_or(CdpError::Timeout("Target.createTarget"))?;
        // Answered after the commands of `setup`: from then on the tab tells its events.
        let answered = tab
            .session
            .call::<IgnoredAny>("Page.getFrameTree", json!({}));
        answered.await?;
        self.activate(&tab.id);
        Ok(tab)
    }

    /// All tabs that have not crashed, in the order of their creation.
    pub fn list(&self) -> Vec<Tab> {
        self.shared.state.lock().tabs().collect()
    }

    pub fn get(&self, id: &TargetId) -> Option<Tab> {
        self.shared.state.lock().tab(id)
    }

    /// The tab that last sent a sign of use (section 2.6).
    pub fn active(&self) -> Option<Tab> {
        self.shared.state.lock().active()
    }

    pub fn activate(&self, id: &TargetId) {
        self.shared.state.lock().activate(id);
    }

    pub async fn close(&self, id: &TargetId) -> Result<(), CdpError> {
        let root = self.root();
        let params = json!({"targetId": id});
        root.call::<IgnoredAny>("Target.closeTarget", params)
            .await?;
        let limit = crate::cdp::CALL_TIMEOUT;
        self.wait(limit, |state| state.tab(id).is_none().then_some(()))
            .await;
        Ok(())
    }

    /// Frames of a tab, parents before their children.
    pub fn frames(&self, tab: &TargetId) -> Vec<Frame> {
        self.shared.state.lock().frames(tab)
    }

    /// Position of the mouse in a tab.
    pub fn mouse(&self, tab: &TargetId) -> (f64, f64) {
        self.shared.state.lock().mouse(tab)
    }

    pub fn set_mouse(&self, tab: &TargetId, position: (f64, f64)) {
        self.shared.state.lock().set_mouse(tab, position);
    }

    /// Number of tabs whose renderer has crashed since the last call.
    pub fn take_crashes(&self) -> usize {
        std::mem::take(&mut self.shared.state.lock().crashes)
    }

    /// Downloads that have completed or failed since the last call, oldest first.
    pub fn take_downloads(&self) -> Vec<Download> {
        self.shared.state.lock().downloads.take_ended()
    }

    /// Waits until `find` finds something in the state; `None` after `limit`, or when the browser
    /// has ended.
    pub(crate) async fn wait<T>(
        &self,
        limit: Duration,
        mut find: impl FnMut(&mut TabsState) -> Option<T>,
    ) -> Option<T> {
        let mut changes = self.shared.changes.subscribe();
        let finding = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = find(&mut self.shared.state.lock()) {
                    return Some(found);
                }
                tokio::select! {
                    more = changes.changed() => more.ok()?,
                    () = self.connection.closed() => return None,
                }
            }
        };
        tokio::time::timeout(limit, finding).await.ok().flatten()
    }

    /// Forgets file choosers and drags of earlier operations in a tab.
    pub fn forget_interceptions(&self, tab: &TargetId) {
        let mut state = self.shared.state.lock();
        state.take_file_chooser(tab);
        state.take_drag(tab);
    }

    /// Waits up to `limit` until a page asks for files.
    pub async fn file_chooser(&self, tab: &TargetId, limit: Duration) -> Option<FileChooser> {
        self.wait(limit, |state| state.take_file_chooser(tab)).await
    }

    /// Waits up to `limit` for the data of a drag that began while `Input.setInterceptDrags` was on.
    pub async fn drag(&self, tab: &TargetId, limit: Duration) -> Option<serde_json::Value> {
        self.wait(limit, |state| state.take_drag(tab)).await
    }

    /// Waits up to `limit` until no download is in progress.
    pub async fn downloads_ended(&self, limit: Duration) {
        self.wait(limit, |state| state.downloads.are_idle().then_some(()))
            .await;
    }

    /// True if a tab was opened that does not show its first page yet.
    pub fn is_opening(&self) -> bool {
        self.shared.state.lock().is_opening()
    }

    /// Waits up to `limit` until all tabs show a page. Each tab is waited for once.
    pub async fn opened(&self, limit: Duration) {
        let opened = self.wait(limit, |state| (!state.is_opening()).then_some(()));
        opened.await;
        let mut state = self.shared.state.lock();
        state.tabs.iter_mut().for_each(|tab| tab.is_opened = true);
    }

    /// Waits up to `limit` until the documents of all frames of a tab are parsed.
    pub async fn documents_ready(&self, tab: &TargetId, limit: Duration) {
        self.wait(limit, |state| state.are_documents_ready(tab).then_some(()))
            .await;
    }

    /// Waits up to `limit` for the `load` event of a document of a frame.
    pub async fn loaded(&self, frame: &FrameId, loader: &str, limit: Duration) -> bool {
        let waiting = self.wait(limit, |state| state.is_loaded(frame, loader).then_some(()));
        waiting.await.is_some()
    }
}
