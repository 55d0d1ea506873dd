//! Watches: the stored state, then every change after it, as lines of JSON. The stream holds no event of its own, only
//! a revision; a reader that is too slow for the history is told so and lists again.

mod lines;

use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use super::{
    Inner,
    error::ApiError,
    faults::Outage,
    request::Request,
    respond::encode::Shape,
    service::Disconnected,
    store::{Event, History},
    verbs::list_matching,
};
use lines::{bookmark, error_line, event_line, event_type};

/// How often a quiet watch hears which revision it is at.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// The longest watch; clients ask for less.
const LONGEST: Duration = Duration::from_hours(1);
/// Events taken from the history at once.
const BATCH: usize = 256;

/// The body of the answer to a watch request.
pub(crate) fn stream(inner: &Arc<Inner>, request: Request) -> Result<Body, ApiError> {
    let watcher = Watcher::start(inner, request)?;
    Ok(Body::from_stream(stream::unfold(
        watcher,
        |mut watcher| async {
            let line = watcher.next().await?;
            Some((line, watcher))
        },
    )))
}

struct Watcher {
    inner: Arc<Inner>,
    request: Request,
    shape: Shape,
    pending: VecDeque<Bytes>,
    position: u64,
    changes: watch::Receiver<u64>,
    drops: watch::Receiver<u64>,
    outage: watch::Receiver<Outage>,
    next_bookmark: Instant,
    end: Instant,
    headers: bool,
    over: bool,
    /// Meets no faults.
    spared: bool,
}

impl Watcher {
    fn start(inner: &Arc<Inner>, request: Request) -> Result<Self, ApiError> {
        let shard = request.target.kind.shard;
        let now = Instant::now();
        let mut watcher = Self {
            shape: Shape::of(inner, &request),
            pending: VecDeque::new(),
            position: inner.store.revision(),
            changes: inner.store.subscribe(shard),
            drops: inner.faults.drops(),
            outage: inner.faults.outage(),
            next_bookmark: now + BOOKMARK_EVERY,
            end: now + request.options.timeout.unwrap_or(LONGEST).min(LONGEST),
            headers: true,
            over: false,
            spared: inner.faults.spares(&request.user_agent),
            inner: inner.clone(),
            request,
        };
        match watcher.rewind() {
            // As a real server: an event and no refusal, which kube-rs would ask for again for ever.
            Err(error @ ApiError::Expired(_)) => {
                watcher.pending.push_back(error_line(&error));
                watcher.over = true;
            }
            other => other?,
        }
        Ok(watcher)
    }

    /// Decides where the stream starts.
    fn rewind(&mut self) -> Result<(), ApiError> {
        let options = &self.request.options;
        let asked = options.resource_version.as_deref().unwrap_or("0");
        let revision: u64 = asked
            .parse()
            .map_err(|_| ApiError::BadRequest(format!("invalid resource version {asked:?}")))?;
        if revision == 0 || options.send_initial_events {
            self.send_initial();
        } else if revision > self.position {
            return Err(ApiError::Expired(format!(
                "Too large resource version: {revision}, current: {}",
                self.position
            )));
        } else if let Some(oldest) = self
            .inner
            .store
            .compacted_after(self.request.target.kind.shard, revision)
        {
            return Err(ApiError::Expired(format!(
                "too old resource version: {revision} ({oldest})"
            )));
        } else {
            self.position = revision;
        }
        Ok(())
    }

    fn send_initial(&mut self) {
        let (items, revision) = list_matching(&self.inner, &self.request);
        self.position = revision;
        for item in items {
            let line = self.render("ADDED", &item);
            self.pending.push_back(line);
        }
        if self.request.options.send_initial_events {
            self.pending
                .push_back(bookmark(&self.shape.kind, revision, true));
        }
    }

    fn render(&mut self, event: &str, object: &Value) -> Bytes {
        self.shape.now = self.inner.clock.now();
        let headers = std::mem::replace(&mut self.headers, false);
        event_line(event, &self.shape.object(object, headers))
    }

    /// The next line, or a broken connection, or the end.
    async fn next(&mut self) -> Option<Result<Bytes, Disconnected>> {
        loop {
            if self.over && self.pending.is_empty() {
                return None;
            }
            if self.breaks() {
                self.over = true;
                self.pending.clear();
                return Some(Err(Disconnected));
            }
            if let Some(line) = self.pending.pop_front() {
                return Some(Ok(line));
            }
            let hanging = *self.outage.borrow() == Outage::Hang && !self.spared;
            let due = if hanging { None } else { self.fetch() };
            if self.pending.is_empty() && !self.over {
                self.wait(due, hanging).await;
            }
        }
    }

    fn breaks(&mut self) -> bool {
        let dropped = self.drops.has_changed().unwrap_or(true);
        if self.spared && dropped {
            self.drops.mark_unchanged();
        }
        !self.spared && (dropped || *self.outage.borrow() == Outage::Refuse)
    }

    /// Takes new events from the history. Returns when the next one may be told, if it is held back.
    fn fetch(&mut self) -> Option<Instant> {
        self.changes.mark_unchanged();
        let (events, caught_up) =
            match self
                .inner
                .store
                .history(self.shape.kind.shard, self.position, BATCH)
            {
                History::Events { events, caught_up } => (events, caught_up),
                History::Forgotten(oldest) => {
                    let error = ApiError::Expired(format!(
                        "too old resource version: {} ({oldest})",
                        self.position
                    ));
                    self.pending.push_back(error_line(&error));
                    self.over = true;
                    return None;
                }
            };
        let lag = if self.spared {
            Duration::ZERO
        } else {
            self.inner.faults.watch_lag()
        };
        for event in events {
            if event.at + lag > Instant::now() {
                return Some(event.at + lag);
            }
            self.position = event.revision;
            self.take(&event);
        }
        self.position = self.position.max(caught_up.unwrap_or(0));
        None
    }

    fn take(&mut self, event: &Arc<Event>) {
        let target = &self.request.target;
        let here = target
            .namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == event.namespace);
        let selector = &self.request.options.selector;
        if let Some(word) = here
            .then(|| event_type(event, |object| selector.matches(object)))
            .flatten()
        {
            let line = self.render(word, &event.object);
            self.pending.push_back(line);
        }
    }

    /// Sleeps until there may be something to say.
    async fn wait(&mut self, due: Option<Instant>, hanging: bool) {
        let mut deadline = if hanging {
            self.end + LONGEST
        } else {
            self.end.min(due.unwrap_or(self.end))
        };
        if self.request.options.bookmarks && !hanging {
            deadline = deadline.min(self.next_bookmark);
        }
        let (mut outage, mut drops) = (self.outage.clone(), self.drops.clone());
        tokio::select! {
            biased;
            _ = drops.changed() => {}
            _ = outage.changed() => { self.outage.mark_unchanged(); }
            _ = self.changes.changed(), if !hanging && due.is_none() => {}
            () = pin!(tokio::time::sleep_until(deadline)) => self.on_time(Instant::now(), hanging),
        }
    }

    fn on_time(&mut self, now: Instant, hanging: bool) {
        if now >= self.end {
            self.over = true;
        } else if self.request.options.bookmarks && !hanging && now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_EVERY;
            self.pending
                .push_back(bookmark(&self.shape.kind, self.position, false));
        }
    }
}
