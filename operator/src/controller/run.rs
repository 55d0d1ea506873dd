//! Wiring: watches, leadership, and the order in which all of it ends.

use std::sync::Arc;
use std::time::Duration;

use crds::Sandbox;
use kube::Client;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Peers;
use super::admission::Admission;
use super::config::ControllerConfig;
use super::idleness::Idleness;
use super::pace::Pace;
use super::pods::Pods;
use super::pools::{self, Pools};
use super::readiness::Readiness;
use super::reconcile::Context;
use super::refusals::Refusals;
use super::suspension;
use super::work::{Worker, enqueue_all};
use crate::clock::Clock;
use crate::index::{Index, Key};
use crate::keys::Keys;
use crate::kubernetes::leader::{Election, LeaderError};
use crate::kubernetes::queue::Queue;
use crate::kubernetes::{watch, wire};
use crate::vitals::Vitals;
use crds::names;

/// How long the first sight of the API keys is waited for. Sandboxes matter more than limits.
const KEYS_LIMIT: Duration = Duration::from_secs(10);

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
    let vitals = config.vitals.clone();
    let election = config.leader.clone().map(|candidacy| {
        let client = wire::observed(&client, &vitals, None);
        Election::new(client, candidacy, vitals.clone())
    });
    let tenure = election.as_ref().map(Election::tenure);
    let client = wire::observed(&client, &vitals, tenure);
    let context = Arc::new(context(client, config, keys, index, peers, clock, &queue));
    // Everything spawned here ends with this function, however it ends; not with the shutdown,
    // because the passes under way go on learning what happens.
    let mut tasks = JoinSet::new();
    spawn_watches(&mut tasks, &context, &CancellationToken::new());
    tasks.spawn(refuse_after(shutdown.clone(), vitals));
    tasks.spawn(enqueue_changes(context.clone(), queue.clone()));
    tasks.spawn(call_when_limits_change(context.clone()));
    let late = queue.clone();
    tasks.spawn(async move { suspension::follow(|| clock.now(), &late).await });
    let worker = Worker::new(&context, &queue);
    tasks.spawn(worker.announce());
    let result = lead(&worker, election, &shutdown).await;
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
        refusals: Refusals::default(),
        admission: Admission::new(config.tenants.clone(), queue.clone()),
        client,
        config,
        keys,
        clock,
        index,
    }
}

fn spawn_watches(tasks: &mut JoinSet<()>, context: &Arc<Context>, shutdown: &CancellationToken) {
    let namespace = context.config.namespace.as_deref();
    let (client, vitals) = (&context.client, &context.config.vitals);
    let sandboxes = watch::api(client, namespace);
    tasks.spawn(watch::run::<Sandbox>(
        sandboxes,
        None,
        context.index.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    let pools = watch::api(client, namespace);
    tasks.spawn(watch::run(
        pools,
        None,
        context.pools.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    let pods = watch::api(client, namespace);
    let (pod_index, vitals, shutdown) = (context.pods.clone(), vitals.clone(), shutdown.clone());
    tasks.spawn(async move {
        let ours = format!("{}={}", names::MANAGED_BY_LABEL, names::CONTROLLER);
        watch::run(pods, Some(&ours), pod_index, vitals, shutdown).await;
    });
}

/// From the shutdown on, the process is not ready.
async fn refuse_after(shutdown: CancellationToken, vitals: Arc<Vitals>) {
    shutdown.cancelled().await;
    vitals.health.stop();
}

/// Every change of a Sandbox asks for a pass over it, but for the report of a refusal.
async fn enqueue_changes(context: Arc<Context>, queue: Arc<Queue<Key>>) {
    let index = &context.index;
    let mut changes = index.changes();
    loop {
        match changes.recv().await {
            Ok(key) if context.refusals.is_report(&key, index) => {}
            Ok(key) => queue.add(key),
            Err(RecvError::Lagged(_)) => enqueue_all(index, &queue),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Has those who wait looked at again when keys or their limits change.
async fn call_when_limits_change(context: Arc<Context>) {
    let mut versions = context.config.tenants.versions();
    // The sender lives in the context, so this cannot fail.
    while versions.changed().await.is_ok() {
        context.admission.call_all();
    }
}

/// Acts, once the caches are warm and the lease is won.
async fn lead(
    worker: &Arc<Worker>,
    election: Option<Election>,
    shutdown: &CancellationToken,
) -> Result<(), ControllerError> {
    let warm = wait_synced(&worker.context);
    if shutdown.run_until_cancelled(warm).await.is_none() {
        return Ok(());
    }
    let Some(mut election) = election else {
        act(worker, shutdown).await;
        return Ok(());
    };
    if shutdown.run_until_cancelled(election.win()).await.is_none() {
        // It may have been won at this very moment.
        election.release().await;
        return Ok(());
    }
    let result = reign(worker, &mut election, shutdown).await;
    worker.lay_down();
    result
}

/// Does what only one controller may do, until shutdown. Whether nothing is under way any more.
async fn act(worker: &Arc<Worker>, shutdown: &CancellationToken) -> bool {
    tokio::select! {
        all_ended = worker.work(shutdown) => all_ended,
        () = pools::report::run(&worker.context) => false,
    }
}

/// Acts until shutdown or until the lease is lost. The lease is given back only when nothing is
/// under way any more; what did not end in time keeps it until it expires.
async fn reign(
    worker: &Arc<Worker>,
    election: &mut Election,
    shutdown: &CancellationToken,
) -> Result<(), ControllerError> {
    let all_ended = tokio::select! {
        all_ended = act(worker, shutdown) => all_ended,
        lost = election.hold() => return Err(lost.into()),
    };
    if all_ended {
        election.release().await;
    }
    Ok(())
}

async fn wait_synced(context: &Context) {
    let mut keys = context.config.tenants.versions();
    let loaded = keys.wait_for(|version| *version > 0);
    if timeout(KEYS_LIMIT, loaded).await.is_err() {
        tracing::warn!("API keys cannot be read: their limits do not hold yet");
    }
    while !context.index.wait_synced(Duration::from_secs(5)).await {
        tracing::info!("waiting for the list of Sandboxes");
    }
    for mut synced in [context.pods.synced(), context.pools.synced()] {
        // The sender lives in the context, so this cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }
}
