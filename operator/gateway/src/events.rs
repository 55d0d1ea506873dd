//! Streams of changes for clients (`docs/gateway.md`, section "Events"). Each change is written as
//! text once for each tenant that has a stream, by one task, and all streams share the bytes. The
//! task runs only while there are streams.

mod backlog;
mod hub;
mod key_check;
mod message;
mod response_abort;
mod stream;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use crds::ImageBuild;
use parking_lot::Mutex;
use shared::index::{Entry, Update};
use shared::metrics::GatewayMetrics;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::builds::Builds;
use crate::sandboxes::Sandboxes;
use hub::{Hub, Subscription};
use message::Message;

pub(crate) use backlog::{Backlog, Scope};
pub(crate) use key_check::KeyCheck;
pub(crate) use message::KEEP_ALIVE;
pub(crate) use response_abort::ResponseAbort;
pub(crate) use stream::EventStream;

/// Streams of one tenant on one replica.
pub(crate) const MAX_STREAMS: usize = 256;

/// Field `change` of an event.
pub(crate) const LISTED: &str = "listed";
pub(crate) const CHANGED: &str = "changed";

/// Descriptions of objects as JSON on one line.
pub(crate) trait Describe: Debug + Send + Sync {
    /// `None` for a sandbox that clients do not see.
    fn runtime(&self, entry: &Entry, change: &'static str) -> Option<String>;
    fn build(&self, build: &ImageBuild) -> Option<String>;
}

/// All event streams of a gateway.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) sandboxes: Sandboxes,
    builds: Arc<Builds>,
    metrics: Arc<GatewayMetrics>,
    table: Mutex<HubTable>,
    /// Cancelled when the replica drains.
    stopping: CancellationToken,
}

#[derive(Debug, Default)]
struct HubTable {
    by_tenant: HashMap<String, Hub>,
    next_reader: u64,
    /// Task that follows the indexes.
    follower: Option<AbortOnDropHandle<()>>,
}

/// The tenant has [`MAX_STREAMS`] streams.
#[derive(Debug, thiserror::Error)]
#[error("this API key has {MAX_STREAMS} event streams: close one before the next")]
pub(crate) struct TooManyStreams;

impl Events {
    pub(crate) fn new(
        sandboxes: Sandboxes,
        builds: Arc<Builds>,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        Self {
            sandboxes,
            builds,
            metrics,
            table: Mutex::default(),
            stopping: CancellationToken::new(),
        }
    }

    /// Ends all streams. Their clients continue on another replica.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Subscribes to the changes of a tenant from now on.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        tenant: &str,
        describe: Arc<dyn Describe>,
    ) -> Result<Subscription, TooManyStreams> {
        let mut table = self.table.lock();
        let reader = table.next_reader;
        let hub = table.by_tenant.entry(tenant.to_owned()).or_default();
        if hub.stream_count() >= MAX_STREAMS {
            return Err(TooManyStreams);
        }
        let subscription = hub.subscribe(self.clone(), tenant, reader);
        table.next_reader += 1;
        if table.follower.is_none() {
            // The receivers exist before the first stream reads the state, so no change is missed.
            let follow = self.clone().follow(describe);
            table.follower = Some(AbortOnDropHandle::new(tokio::spawn(follow)));
        }
        Ok(subscription)
    }

    fn unsubscribe(&self, tenant: &str, reader: u64) {
        let mut table = self.table.lock();
        let Some(hub) = table.by_tenant.get_mut(tenant) else {
            return;
        };
        hub.remove(reader);
        if hub.stream_count() == 0 {
            table.by_tenant.remove(tenant);
        }
        if table.by_tenant.is_empty() {
            table.follower = None;
        }
    }

    /// Passes every change on, until the last stream has ended.
    fn follow(self: Arc<Self>, describe: Arc<dyn Describe>) -> impl Future<Output = ()> + Send {
        let mut sandboxes = self.sandboxes.index.updates();
        let mut builds = self.builds.index.updates();
        async move {
            loop {
                let behind = tokio::select! {
                    update = sandboxes.recv() => match update {
                        Ok(update) => { self.pass_on(&update, &*describe); false }
                        Err(RecvError::Lagged(_)) => true,
                        Err(RecvError::Closed) => return,
                    },
                    build = builds.recv() => match build {
                        Ok(build) => { self.pass_build_on(&build, &*describe); false }
                        Err(RecvError::Lagged(_)) => true,
                        Err(RecvError::Closed) => return,
                    },
                };
                if behind {
                    // Changes are lost. The streams end, and their clients continue by cursor.
                    tracing::warn!("event streams lag behind the index and end");
                    self.table.lock().end_streams();
                }
            }
        }
    }

    fn pass_on(&self, update: &Update, describe: &dyn Describe) {
        let entry = &update.entry;
        let Some(session) = entry.session() else {
            return;
        };
        if !self.is_watched(&session.tenant) || !self.sandboxes.is_in_api_namespace(entry) {
            return;
        }
        let message = if update.is_removed {
            Some(Message::deleted(update, session))
        } else {
            let text = describe.runtime(entry, CHANGED);
            text.map(|text| Message::runtime(update, &text))
        };
        if let Some(message) = message {
            self.publish(&session.tenant, message);
        }
    }

    fn pass_build_on(&self, build: &ImageBuild, describe: &dyn Describe) {
        let tenant = &build.spec.tenant;
        if self.is_watched(tenant)
            && let Some(text) = describe.build(build)
        {
            self.publish(tenant, Message::build(&text));
        }
    }

    fn is_watched(&self, tenant: &str) -> bool {
        self.table.lock().by_tenant.contains_key(tenant)
    }

    fn publish(&self, tenant: &str, message: Message) {
        if let Some(hub) = self.table.lock().by_tenant.get_mut(tenant) {
            let stalled = hub.publish(message);
            self.metrics.event_streams_dropped.inc_by(stalled);
        }
    }
}

impl HubTable {
    /// Closes every hub; each stream ends when it notices.
    fn end_streams(&mut self) {
        self.by_tenant.values_mut().for_each(Hub::close);
    }
}
