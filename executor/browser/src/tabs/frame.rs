//! A frame: its document, and the contexts in which scripts run in it.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::cdp::Session;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FrameId(pub(super) Arc<str>);

impl From<&str> for FrameId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl Display for FrameId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for FrameId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// A frame at one moment.
#[derive(Debug, Clone)]
pub struct Frame {
    pub id: FrameId,
    pub parent: Option<FrameId>,
    /// Session of its process: that of the page, or its own for another site.
    pub session: Session,
    /// True if its process is not that of its parent.
    pub is_remote: bool,
    pub url: String,
}

#[derive(Debug)]
pub(super) struct FrameState {
    pub(super) id: FrameId,
    pub(super) parent: Option<FrameId>,
    pub(super) session: Session,
    pub(super) is_remote: bool,
    pub(super) number: u64,
    /// Identifier of the document's load; empty for an initial `about:blank`.
    pub(super) loader: String,
    pub(super) url: String,
    /// True after `DOMContentLoaded`.
    pub(super) is_ready: bool,
    /// True after `load`.
    pub(super) is_loaded: bool,
    /// True from a page's request for a navigation until that starts or is dropped.
    pub(super) is_requested: bool,
    /// True from the start of a navigation until its document is there or it has failed.
    pub(super) is_started: bool,
    pub(super) main_context: Option<i64>,
    pub(super) isolated_context: Option<i64>,
}

impl FrameState {
    pub(super) fn new(id: FrameId, parent: Option<FrameId>, session: Session, number: u64) -> Self {
        Self {
            id,
            parent,
            session,
            is_remote: false,
            number,
            loader: String::new(),
            url: String::new(),
            is_ready: true,
            is_loaded: true,
            is_requested: false,
            is_started: false,
            main_context: None,
            isolated_context: None,
        }
    }

    pub(super) fn frame(&self) -> Frame {
        Frame {
            id: self.id.clone(),
            parent: self.parent.clone(),
            session: self.session.clone(),
            is_remote: self.is_remote,
            url: self.url.clone(),
        }
    }

    pub(super) fn is_navigating(&self) -> bool {
        self.is_requested || self.is_started
    }

    pub(super) fn end_navigation(&mut self) {
        (self.is_requested, self.is_started) = (false, false);
    }

    /// Begins a new document. Returns false if it is known already.
    pub(super) fn begin_document(&mut self, loader: &str) -> bool {
        let is_new = self.loader != loader;
        if is_new {
            loader.clone_into(&mut self.loader);
            (self.is_ready, self.is_loaded) = (false, false);
        }
        is_new
    }
}
