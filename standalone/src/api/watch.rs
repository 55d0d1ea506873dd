//! Watches: the stored objects, then every change, as lines of JSON. A stream holds only a
//! revision, no events. A reader slower than the history gets 410 and lists again.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{
    ApiState, encode,
    error::ApiError,
    listing::list_matching,
    object::{self, set_meta},
    request::Request,
    store::Event,
};

/// Interval of bookmarks on a quiet watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum duration of a watch; clients ask for less.
const MAX_WATCH_DURATION: Duration = Duration::from_hours(1);
/// Events read from the history at once.
const BATCH: usize = 256;

pub(super) fn stream(state: Arc<ApiState>, request: Request) -> Result<Response, ApiError> {
    let watcher = Watcher::start(state, request)?;
    let lines = stream::unfold(watcher, |mut watcher| async {
        let line = watcher.next().await?;
        Some((Ok::<_, Infallible>(line), watcher))
    });
    Ok(encode::ok("application/json", Body::from_stream(lines)))
}

struct Watcher {
    state: Arc<ApiState>,
    request: Request,
    pending: VecDeque<Bytes>,
    position: u64,
    changes: watch::Receiver<()>,
    next_bookmark: Instant,
    end: Instant,
    headers: bool,
    is_finished: bool,
}

impl Watcher {
    fn start(state: Arc<ApiState>, request: Request) -> Result<Self, ApiError> {
        let now = Instant::now();
        let timeout = request.options.timeout.unwrap_or(MAX_WATCH_DURATION);
        let mut watcher = Self {
            pending: VecDeque::new(),
            position: state.store.revision(),
            changes: state.store.subscribe(request.target.kind.shard),
            next_bookmark: now + BOOKMARK_INTERVAL,
            end: now + timeout.min(MAX_WATCH_DURATION),
            headers: true,
            is_finished: false,
            state,
            request,
        };
        match watcher.start_position() {
            // An ERROR event as on a real server: kube-rs would retry an HTTP error for ever.
            Err(error @ ApiError::Expired(_)) => watcher.finish_with(&error),
            other => other?,
        }
        Ok(watcher)
    }

    /// Decides from which revision the stream starts.
    fn start_position(&mut self) -> Result<(), ApiError> {
        let options = &self.request.options;
        let requested = options.resource_version.as_deref().unwrap_or("0");
        let revision: u64 = requested
            .parse()
            .map_err(|_| ApiError::BadRequest(format!("invalid resource version {requested:?}")))?;
        if revision == 0 || options.send_initial_events {
            self.send_initial();
            return Ok(());
        }
        let current = self.position;
        if revision > current {
            let message = format!("Too large resource version: {revision}, current: {current}");
            return Err(ApiError::Expired(message));
        }
        let shard = self.request.target.kind.shard;
        if let Some(oldest) = self.state.store.compacted_after(shard, revision) {
            return Err(too_old(revision, oldest));
        }
        self.position = revision;
        Ok(())
    }

    fn send_initial(&mut self) {
        let (items, revision) = list_matching(&self.state, &self.request);
        self.position = revision;
        for item in items {
            self.push_object("ADDED", &item);
        }
        if self.request.options.send_initial_events {
            self.push_bookmark(true);
        }
    }

    fn push(&mut self, event: &str, object: &Value) {
        self.pending.push_back(event_line(event, object));
    }

    fn push_object(&mut self, event: &str, object: &Value) {
        let headers = std::mem::replace(&mut self.headers, false);
        let now = self.state.clock.now();
        let object = encode::object(&self.request, object, now, headers);
        self.pending.push_back(event_line(event, &object));
    }

    /// Sends a bookmark. The last one of a streamed list marks its end.
    fn push_bookmark(&mut self, initial_end: bool) {
        let kind = &self.request.target.kind;
        let mut object = json!({"kind": kind.name, "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.position.to_string()}});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.push("BOOKMARK", &object);
    }

    fn finish_with(&mut self, error: &ApiError) {
        self.push("ERROR", &error.to_status());
        self.is_finished = true;
    }

    /// Returns the next line, or the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.is_finished {
                return None;
            }
            self.fetch();
            if self.pending.is_empty() && !self.is_finished {
                self.wait().await;
            }
        }
    }

    fn fetch(&mut self) {
        self.changes.mark_unchanged();
        let shard = self.request.target.kind.shard;
        match self.state.store.history(shard, self.position, BATCH) {
            Ok((events, position)) => {
                for event in events {
                    self.push_event(&event);
                }
                self.position = position;
            }
            Err(oldest) => self.finish_with(&too_old(self.position, oldest)),
        }
    }

    fn push_event(&mut self, event: &Event) {
        let namespace = self.request.target.namespace.as_deref();
        if namespace.is_some_and(|namespace| namespace != object::namespace(&event.object)) {
            return;
        }
        let selector = &self.request.options.selector;
        let previous = event.previous.as_ref();
        let previous = previous.filter(|previous| selector.matches(previous));
        let is_match = selector.matches(&event.object);
        match (previous, is_match && !event.is_deleted) {
            (None, true) => self.push_object("ADDED", &event.object),
            (Some(_), true) => self.push_object("MODIFIED", &event.object),
            (Some(_), false) if is_match => self.push_object("DELETED", &event.object),
            // The object has left the selector: as on a real server, in the state that matched.
            (Some(previous), false) => {
                let mut object = Value::clone(previous);
                set_meta(&mut object, "resourceVersion", event.revision.to_string());
                self.push_object("DELETED", &object);
            }
            (None, false) => {}
        }
    }

    /// Waits for a change or a deadline.
    async fn wait(&mut self) {
        let has_bookmarks = self.request.options.bookmarks;
        let mut deadline = self.end;
        if has_bookmarks {
            deadline = deadline.min(self.next_bookmark);
        }
        tokio::select! {
            biased;
            _ = self.changes.changed() => return,
            () = tokio::time::sleep_until(deadline) => {}
        }
        let now = Instant::now();
        if now >= self.end {
            self.is_finished = true;
        } else if has_bookmarks && now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_INTERVAL;
            self.push_bookmark(false);
        }
    }
}

fn too_old(revision: u64, oldest: u64) -> ApiError {
    ApiError::Expired(format!("too old resource version: {revision} ({oldest})"))
}

/// One event; borrows the object, which may be large.
#[derive(Serialize)]
struct EventLine<'a> {
    r#type: &'a str,
    object: &'a Value,
}

fn event_line(r#type: &str, object: &Value) -> Bytes {
    let mut line = serde_json::to_vec(&EventLine { r#type, object }).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
