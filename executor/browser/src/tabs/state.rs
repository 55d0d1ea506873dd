//! State of all tabs. Methods only read and write memory.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::download::Downloads;
use super::frame::{Frame, FrameId, FrameState};
use crate::cdp::{Connection, Session, SessionId};

/// Tabs that a page may open; further ones are closed at once.
pub(super) const MAX_TABS: usize = 64;
/// Frames of a tab that are known; a page can have more, which observations do not show.
pub(super) const MAX_FRAMES: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TargetId(pub(super) Arc<str>);

impl From<&str> for TargetId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Display for TargetId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for TargetId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A tab at one moment.
#[derive(Debug, Clone)]
pub struct Tab {
    pub id: TargetId,
    pub session: Session,
    pub url: String,
    pub title: String,
}

impl Tab {
    /// Chromium names the main frame like the target.
    pub fn main_frame(&self) -> FrameId {
        FrameId(Arc::clone(&self.id.0))
    }
}

#[derive(Debug)]
pub(super) struct TabState {
    pub(super) tab: Tab,
    pub(super) frames: HashMap<FrameId, FrameState>,
    /// Number of frames so far, which gives their order.
    pub(super) frame_count: u64,
    /// Number of documents so far, and of navigations within one, in all frames.
    pub(super) navigation_count: u64,
    /// True once it has shown a sign of use (section 2.6).
    pub(super) is_used: bool,
    /// True once its first page was waited for.
    pub(super) is_opened: bool,
    pub(super) mouse: (f64, f64),
    /// Input element whose chooser was opened and not yet answered.
    pub(super) file_chooser: Option<FileChooser>,
    /// Data of a drag that Chromium has handed over.
    pub(super) drag: Option<serde_json::Value>,
}

/// A page asks for files.
#[derive(Debug, Clone)]
pub struct FileChooser {
    pub session: Session,
    pub backend_node_id: i64,
    pub is_multiple: bool,
}

#[derive(Debug, Default)]
pub(crate) struct TabsState {
    pub(super) connection: Option<Connection>,
    /// In the order of their creation.
    pub(super) tabs: Vec<TabState>,
    /// Sessions of pages, and of frames of other sites in them.
    pub(super) sessions: HashMap<SessionId, TargetId>,
    /// Tabs by last use, the active one last.
    pub(super) used: Vec<TargetId>,
    pub(super) crashes: usize,
    pub(super) downloads: Downloads,
}

impl TabsState {
    pub(super) fn tabs(&self) -> impl Iterator<Item = Tab> {
        self.tabs.iter().map(|state| state.tab.clone())
    }

    pub(crate) fn tab(&self, id: &TargetId) -> Option<Tab> {
        self.find(id).map(|state| state.tab.clone())
    }

    pub(super) fn find(&self, id: &TargetId) -> Option<&TabState> {
        self.tabs.iter().find(|state| state.tab.id == *id)
    }

    pub(super) fn find_mut(&mut self, id: &TargetId) -> Option<&mut TabState> {
        self.tabs.iter_mut().find(|state| state.tab.id == *id)
    }

    pub(super) fn of_session(&mut self, session: &SessionId) -> Option<&mut TabState> {
        let id = self.sessions.get(session)?.clone();
        self.find_mut(&id)
    }

    pub(super) fn active(&self) -> Option<Tab> {
        self.used.last().and_then(|id| self.tab(id))
    }

    pub(super) fn activate(&mut self, id: &TargetId) {
        self.used.retain(|used| used != id);
        self.used.push(id.clone());
        if let Some(state) = self.find_mut(id) {
            state.is_used = true;
        }
    }

    /// Forgets a tab that was closed or has crashed.
    pub(super) fn remove(&mut self, id: &TargetId) {
        self.tabs.retain(|state| state.tab.id != *id);
        self.sessions.retain(|_, tab| tab != id);
        self.used.retain(|used| used != id);
    }

    pub(super) fn frames(&self, tab: &TargetId) -> Vec<Frame> {
        let Some(state) = self.find(tab) else {
            return Vec::new();
        };
        let mut frames: Vec<_> = state.frames.values().collect();
        frames.sort_by_key(|frame| frame.number);
        frames.into_iter().map(FrameState::frame).collect()
    }

    pub(super) fn mouse(&self, tab: &TargetId) -> (f64, f64) {
        self.find(tab).map_or((0.0, 0.0), |state| state.mouse)
    }

    pub(super) fn set_mouse(&mut self, tab: &TargetId, position: (f64, f64)) {
        if let Some(state) = self.find_mut(tab) {
            state.mouse = position;
        }
    }

    pub(super) fn navigating_frames(&self, tab: &TargetId) -> HashSet<FrameId> {
        let frames = self
            .find(tab)
            .into_iter()
            .flat_map(|tab| tab.frames.values());
        let navigating = frames.filter(|frame| frame.is_navigating());
        navigating.map(|frame| frame.id.clone()).collect()
    }

    /// True if the main frame has its document, after more than `since` navigations.
    pub(super) fn has_navigated(&self, tab: &TargetId, since: u64) -> bool {
        self.find(tab).is_some_and(|state| {
            let main = state.frames.get(&state.tab.main_frame());
            let is_loaded = main.is_some_and(|main| main.is_loaded && !main.is_navigating());
            is_loaded && state.navigation_count > since
        })
    }

    /// True if a tab was opened that does not show its first page yet.
    pub(super) fn is_opening(&self) -> bool {
        let mut new = self.tabs.iter().filter(|state| !state.is_opened);
        new.any(|state| {
            let main = state.frames.get(&state.tab.main_frame());
            let has_page = main.is_some_and(|main| main.is_ready && !main.is_navigating());
            !(state.is_used && has_page)
        })
    }

    pub(super) fn are_documents_ready(&self, tab: &TargetId) -> bool {
        self.find(tab)
            .is_none_or(|state| state.frames.values().all(|frame| frame.is_ready))
    }

    pub(super) fn is_loaded(&self, id: &FrameId, loader: &str) -> bool {
        let frame = self.tabs.iter().find_map(|state| state.frames.get(id));
        frame.is_some_and(|frame| frame.is_loaded && frame.loader == loader)
    }

    /// Takes the file chooser that a page has opened.
    pub(super) fn take_file_chooser(&mut self, tab: &TargetId) -> Option<FileChooser> {
        self.find_mut(tab)?.file_chooser.take()
    }

    /// Takes the data of a drag that has begun.
    pub(super) fn take_drag(&mut self, tab: &TargetId) -> Option<serde_json::Value> {
        self.find_mut(tab)?.drag.take()
    }
}
