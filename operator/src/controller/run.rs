//! Wiring: watches, leadership, and the workers that take keys from the queue.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Peers;
use super::config::ControllerConfig;
use super::idleness::Idleness;
use super::pace::Pace;
use super::pods::Pods;
use super::pools::Pools;
use super::readiness::Readiness;
use super::reconcile::{Context, reconcile};
use crate::clock::Clock;
use crate::index::{Index, Key};
use crate::keys::Keys;
use crate::kubernetes::leader::{Election, LeaderError};
use crate::kubernetes::queue::{LONGEST_OUTAGE_PAUSE, LONGEST_PAUSE, Queue};
use crate::kubernetes::watch;
use crds::names;

/// Passes under way at once.
const CONCURRENT: usize = 32;
/// Longest time for one pass.
const PASS_TIMEOUT: Duration = Duration::from_mins(1);
/// How long passes may take to end on shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(15);

/// Why the controller ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Another process acts now; this one must not.
    #[error("leadership is lost")]
    Leadership(#[from] LeaderError),
}

/// Runs the controller until `shutdown`, or until it loses its leadership. It feeds `index`
/// itself; that somebody else does so as well is harmless.
pub async fn run(
    client: Client,
    config: ControllerConfig,
    keys: Arc<Keys>,
    index: Arc<Index>,
    peers: Peers,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let queue = Arc::new(Queue::default());
    let context = Arc::new(context(client, config, keys, index, peers, clock, &queue));
    // Everything spawned here ends with this function, however it ends.
    let shutdown = shutdown.child_token();
    let _ended = shutdown.clone().drop_guard();
    let mut tasks = JoinSet::new();
    spawn_watches(&mut tasks, &context, &shutdown);
    tasks.spawn(enqueue_changes(context.index.clone(), queue.clone()));
    let result = lead(&context, &queue, &shutdown).await;
    tasks.shutdown().await;
    result
}

pub(super) fn context(
    client: Client,
    config: ControllerConfig,
    keys: Arc<Keys>,
    index: Arc<Index>,
    peers: Peers,
    clock: Clock,
    queue: &Arc<Queue<Key>>,
) -> Context {
    let supervisors = peers.supervisors.clone();
    let readiness = Readiness::new(supervisors, keys.clone(), clock, queue.clone());
    Context {
        control_key: keys.signer().public_key(),
        pods: Arc::new(Pods::new(clock, queue.clone())),
        pools: Arc::new(Pools::new(index.clone(), queue.clone())),
        readiness: Arc::new(readiness),
        idleness: Arc::new(Idleness::new(peers, clock, queue.clone())),
        pace: Pace::default(),
        client,
        config,
        keys,
        clock,
        index,
    }
}

fn spawn_watches(tasks: &mut JoinSet<()>, context: &Arc<Context>, shutdown: &CancellationToken) {
    let namespace = context.config.namespace.clone();
    let client = &context.client;
    tasks.spawn(watch::sandboxes(
        client.clone(),
        namespace.clone(),
        context.index.clone(),
        shutdown.clone(),
    ));
    let pools = watch::api(client, namespace.as_deref());
    tasks.spawn(watch::run(
        pools,
        None,
        context.pools.clone(),
        shutdown.clone(),
    ));
    let pods = watch::api(client, namespace.as_deref());
    let (pod_index, shutdown) = (context.pods.clone(), shutdown.clone());
    tasks.spawn(async move {
        let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::CONTROLLER);
        watch::run(pods, Some(&ours), pod_index, shutdown).await;
    });
}

/// Every change of a Sandbox asks for a pass over it.
async fn enqueue_changes(index: Arc<Index>, queue: Arc<Queue<Key>>) {
    let mut changes = index.changes();
    loop {
        match changes.recv().await {
            Ok(key) => queue.add(key),
            Err(RecvError::Lagged(_)) => enqueue_all(&index, &queue),
            Err(RecvError::Closed) => return,
        }
    }
}

fn enqueue_all(index: &Index, queue: &Queue<Key>) {
    for entry in index.list(|_| true) {
        queue.add(entry.key.clone());
    }
}

/// Acts, once the caches are warm and the lease is won.
async fn lead(
    context: &Arc<Context>,
    queue: &Arc<Queue<Key>>,
    shutdown: &CancellationToken,
) -> Result<(), ControllerError> {
    if shutdown
        .run_until_cancelled(wait_synced(context))
        .await
        .is_none()
    {
        return Ok(());
    }
    let Some(candidacy) = context.config.leader.clone() else {
        work(context, queue, shutdown).await;
        return Ok(());
    };
    let mut election = Election::new(context.client.clone(), candidacy);
    if shutdown.run_until_cancelled(election.win()).await.is_none() {
        return Ok(());
    }
    tokio::select! {
        () = work(context, queue, shutdown) => {
            election.release().await;
            Ok(())
        }
        lost = election.hold() => Err(lost.into()),
    }
}

async fn wait_synced(context: &Context) {
    while !context.index.wait_synced(Duration::from_secs(5)).await {
        tracing::info!("waiting for the list of Sandboxes");
    }
    for mut synced in [context.pods.synced(), context.pools.synced()] {
        // The sender lives in the context, so this cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }
}

/// Takes keys from the queue until shutdown, then lets the passes under way end.
async fn work(context: &Arc<Context>, queue: &Arc<Queue<Key>>, shutdown: &CancellationToken) {
    tracing::info!("reconciling");
    queue.open();
    enqueue_all(&context.index, queue);
    let mut passes = JoinSet::new();
    while let Some(key) = shutdown.run_until_cancelled(queue.next()).await {
        passes.spawn(pass(context.clone(), queue.clone(), key));
        while passes.try_join_next().is_some() {}
        if passes.len() >= CONCURRENT {
            passes.join_next().await;
        }
    }
    let drained = timeout(DRAIN_TIMEOUT, async {
        while passes.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!("some passes did not end in time");
    }
}

async fn pass(context: Arc<Context>, queue: Arc<Queue<Key>>, key: Key) {
    let mut end = End {
        queue: &queue,
        key: &key,
        outcome: Outcome::Failed(LONGEST_PAUSE),
    };
    match timeout(PASS_TIMEOUT, reconcile(&context, &key)).await {
        Ok(Ok(next)) => {
            end.outcome = Outcome::Done(next.map(|at| instant(at, context.clock.now())));
        }
        Ok(Err(error)) => {
            tracing::warn!(%key, %error, "a pass failed; trying again");
            if error.is_of_server() {
                end.outcome = Outcome::Failed(LONGEST_OUTAGE_PAUSE);
            }
        }
        Err(_) => tracing::warn!(%key, "a pass took too long; trying again"),
    }
}

/// Ends a pass in the queue even if it panics, or the key would never be handed out again.
struct End<'a> {
    queue: &'a Queue<Key>,
    key: &'a Key,
    outcome: Outcome,
}

enum Outcome {
    /// It went well; look again then.
    Done(Option<Instant>),
    /// Try again after a pause that grows up to this.
    Failed(Duration),
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        match self.outcome {
            Outcome::Failed(longest) => self.queue.failed(self.key, longest),
            Outcome::Done(next) => {
                self.queue.done(self.key);
                if let Some(at) = next {
                    self.queue.add_at(self.key.clone(), at);
                }
            }
        }
    }
}

/// The moment on tokio's clock. Timestamps in a status have no fractions of seconds, so a
/// deadline derived from one may come a little early; the millisecond keeps passes from spinning.
fn instant(at: Timestamp, now: Timestamp) -> Instant {
    let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Instant::now() + wait + Duration::from_millis(1)
}
