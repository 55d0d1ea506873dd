//! One event as text of the event stream format (HTML, section 9.2).

use bytes::Bytes;
use crds::sandbox::Session;
use serde::Serialize;
use shared::index::{Cursor, Deletion, Key, Update};

/// Text that keeps the connection open.
pub(crate) const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Message of a hub.
#[derive(Debug)]
pub(super) struct Message {
    /// Number within the hub, which sets it.
    pub(super) number: u64,
    /// `None` for an image build.
    pub(super) change: Option<Change>,
    text: Bytes,
    /// Length of the line of the cursor.
    cursor_bytes: usize,
}

/// Change of a sandbox.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) key: Key,
    /// Number of the change in the index.
    pub(super) sequence: u64,
    pub(super) is_removed: bool,
}

/// Data of the event `deleted`.
#[derive(Serialize)]
struct DeletedRuntime<'a> {
    runtime_id: &'a str,
    session_id: &'a str,
}

impl Message {
    pub(super) fn runtime(update: &Update, data: &str) -> Self {
        Self::of(update, &event("runtime", data))
    }

    pub(super) fn deleted(update: &Update, session: &Session) -> Self {
        Self::of(update, &deleted(&update.entry.runtime_id, &session.id))
    }

    pub(super) fn build(data: &str) -> Self {
        Self {
            number: 0,
            change: None,
            text: build(data).into(),
            cursor_bytes: 0,
        }
    }

    fn of(update: &Update, event: &str) -> Self {
        let line = cursor_line(update.cursor);
        Self {
            number: 0,
            change: Some(Change {
                key: update.entry.key.clone(),
                sequence: update.sequence,
                is_removed: update.is_removed,
            }),
            cursor_bytes: line.len(),
            text: (line + event).into(),
        }
    }

    pub(super) fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// Text for a client that has not seen all before the cursor yet.
    pub(super) fn without_cursor(&self) -> Bytes {
        self.text.slice(self.cursor_bytes..)
    }
}

pub(super) fn runtime(data: &str) -> String {
    event("runtime", data)
}

pub(super) fn build(data: &str) -> String {
    event("build", data)
}

pub(super) fn deletion(deletion: &Deletion) -> String {
    deleted(&deletion.runtime_id, &deletion.session_id)
}

/// End of the first part of a stream: `synced` or `resumed`.
pub(super) fn end_of_backlog(name: &str, cursor: Cursor) -> String {
    cursor_line(cursor) + &event(name, "{}")
}

fn deleted(runtime_id: &str, session_id: &str) -> String {
    let runtime = DeletedRuntime {
        runtime_id,
        session_id,
    };
    // Serializing texts cannot fail.
    let data = serde_json::to_string(&runtime).unwrap_or_default();
    event("deleted", &data)
}

fn cursor_line(cursor: Cursor) -> String {
    format!("id: {cursor}\n")
}

/// The data is JSON on one line.
fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
