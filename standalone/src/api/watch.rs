//! Watches: the stored objects, then every change, as lines of JSON. A stream holds only a
//! revision, no events. A reader slower than the history gets 410 and lists again.

mod encode;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{
    ApiState,
    encode::ResponseEncoder,
    error::{ApiError, Disconnected},
    listing::list_matching,
    object::set_meta,
    request::Request,
    store::{Event, History},
};
use encode::{bookmark, error_line, event_line, event_type};

/// Interval of bookmarks on a quiet watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum duration of a watch; clients ask for less.
const MAX_WATCH_DURATION: Duration = Duration::from_hours(1);
/// Events read from the history at once.
const BATCH: usize = 256;

/// Line of a watch, with the time of the change.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) line: Bytes,
    pub(super) at: Option<Instant>,
}

pub(super) type Frames = BoxStream<'static, Result<Frame, Disconnected>>;
pub(super) type Lines = BoxStream<'static, Result<Bytes, Disconnected>>;

/// Extension of a request that changes how its lines are delivered. Requests over HTTP have none.
#[derive(Clone)]
pub(super) struct WatchHook(pub(super) Arc<dyn Fn(Frames) -> Lines + Send + Sync>);

impl fmt::Debug for WatchHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchHook")
    }
}

/// Body of the response to a watch request.
pub(super) fn stream(
    state: &Arc<ApiState>,
    request: Request,
    hook: Option<WatchHook>,
) -> Result<Body, ApiError> {
    let watcher = Watcher::start(state, request)?;
    let frames = stream::unfold(watcher, |mut watcher| async {
        let frame = watcher.next().await?;
        Some((frame, watcher))
    });
    Ok(match hook {
        Some(WatchHook(wrap)) => Body::from_stream(wrap(frames.boxed())),
        None => Body::from_stream(frames.map_ok(|frame| frame.line)),
    })
}

struct Watcher {
    state: Arc<ApiState>,
    request: Request,
    encoder: ResponseEncoder,
    pending: VecDeque<Frame>,
    position: u64,
    changes: watch::Receiver<u64>,
    next_bookmark: Instant,
    end: Instant,
    headers: bool,
    is_finished: bool,
}

impl Watcher {
    fn start(state: &Arc<ApiState>, request: Request) -> Result<Self, ApiError> {
        let now = Instant::now();
        let timeout = request.options.timeout.unwrap_or(MAX_WATCH_DURATION);
        let mut watcher = Self {
            encoder: ResponseEncoder::of(state, &request),
            pending: VecDeque::new(),
            position: state.store.revision(),
            changes: state.store.subscribe(request.target.kind.shard),
            next_bookmark: now + BOOKMARK_INTERVAL,
            end: now + timeout.min(MAX_WATCH_DURATION),
            headers: true,
            is_finished: false,
            state: state.clone(),
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
        if revision > self.position {
            return Err(ApiError::Expired(format!(
                "Too large resource version: {revision}, current: {}",
                self.position
            )));
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
            let line = self.render("ADDED", &item);
            self.push(line, None);
        }
        if self.request.options.send_initial_events {
            let line = bookmark(&self.encoder.kind, revision, true);
            self.push(line, None);
        }
    }

    fn push(&mut self, line: Bytes, at: Option<Instant>) {
        self.pending.push_back(Frame { line, at });
    }

    fn finish_with(&mut self, error: &ApiError) {
        self.push(error_line(error), None);
        self.is_finished = true;
    }

    fn render(&mut self, event: &str, object: &Value) -> Bytes {
        self.encoder.now = self.state.clock.now();
        let headers = std::mem::replace(&mut self.headers, false);
        event_line(event, &self.encoder.object(object, headers))
    }

    /// Returns the next line, a broken connection, or the end.
    async fn next(&mut self) -> Option<Result<Frame, Disconnected>> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(Ok(frame));
            }
            if self.is_finished {
                return None;
            }
            if self.state.store.is_closed() {
                self.is_finished = true;
                return Some(Err(Disconnected));
            }
            self.fetch();
            if self.pending.is_empty() && !self.is_finished {
                self.wait().await;
            }
        }
    }

    /// Reads new events from the history.
    fn fetch(&mut self) {
        self.changes.mark_unchanged();
        let shard = self.encoder.kind.shard;
        match self.state.store.history(shard, self.position, BATCH) {
            History::Events { events, caught_up } => {
                for event in events {
                    self.position = event.revision;
                    self.push_event(&event);
                }
                self.position = self.position.max(caught_up.unwrap_or(0));
            }
            History::Forgotten(oldest) => self.finish_with(&too_old(self.position, oldest)),
        }
    }

    fn push_event(&mut self, event: &Arc<Event>) {
        let namespace = self.request.target.namespace.as_ref();
        if namespace.is_some_and(|namespace| *namespace != event.namespace) {
            return;
        }
        let selector = &self.request.options.selector;
        let Some(name) = event_type(event, |object| selector.matches(object)) else {
            return;
        };
        let line = match &event.previous {
            // The object has left the selector: as on a real server, in the state that matched.
            Some(previous) if name == "DELETED" && !selector.matches(&event.object) => {
                let mut object = Value::clone(previous);
                set_meta(&mut object, "resourceVersion", event.revision.to_string());
                self.render(name, &object)
            }
            _ => self.render(name, &event.object),
        };
        self.push(line, Some(event.at));
    }

    /// Waits for a change or a deadline.
    async fn wait(&mut self) {
        let mut deadline = self.end;
        if self.request.options.bookmarks {
            deadline = deadline.min(self.next_bookmark);
        }
        tokio::select! {
            biased;
            _ = self.changes.changed() => {}
            () = tokio::time::sleep_until(deadline) => self.on_time(Instant::now()),
        }
    }

    fn on_time(&mut self, now: Instant) {
        if now >= self.end {
            self.is_finished = true;
        } else if self.request.options.bookmarks && now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_INTERVAL;
            let line = bookmark(&self.encoder.kind, self.position, false);
            self.push(line, None);
        }
    }
}

fn too_old(revision: u64, oldest: u64) -> ApiError {
    ApiError::Expired(format!("too old resource version: {revision} ({oldest})"))
}
