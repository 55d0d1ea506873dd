//! Wires the controller together: watches, leader election, work queue, and the order of shutdown.

mod clock_jump;
mod spans;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use crds::Sandbox;
use kube::Client;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::PeerClients;
use crate::cluster_probes::{self, ProbeRecords};
use crate::config::ControllerConfig;
use crate::context::Context;
use crate::image_builds;
use crate::pools;
use crate::pools::reconciler::PoolReconciler;
use crate::snapshots;
use crds::names;
use shared::clock::Clock;
use shared::diagnostics::Diagnostics;
use shared::image_builds::ImageBuilds;
use shared::index::{Index, Key};
use shared::keys::Keys;
use shared::kubernetes::leader::{LeaderElection, LeaderError};
use shared::kubernetes::work_queue::WorkQueue;
use shared::kubernetes::{middleware, watch};
use worker::{Worker, enqueue_all};

/// Time to wait for the first read of the API keys. After that, sandboxes start without limits.
const API_KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// Reason for which the controller ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Another process may lead now; this one must not write.
    #[error("leadership was lost")]
    Leadership(#[from] LeaderError),
    /// A watch or another task panicked. A restart replaces it.
    #[error("a background task ended unexpectedly")]
    TaskEnded,
}

/// Runs the controller until `shutdown`, or until it loses its leadership. It feeds `index` itself;
/// a second feeder is harmless.
pub async fn run(
    client: Client,
    config: ControllerConfig,
    keys: Arc<Keys>,
    index: Arc<Index>,
    peers: PeerClients,
    clock: Clock,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let queue = Arc::new(WorkQueue::default());
    let vitals = config.vitals.clone();
    let election = config.leader.clone().map(|lease| {
        let client = middleware::instrument(&client, &vitals, None);
        LeaderElection::new(client, lease, vitals.clone())
    });
    let fence = election.as_ref().map(LeaderElection::write_fence);
    let client = middleware::instrument(&client, &vitals, fence);
    let context = Context::new(client, config, keys, index, peers, clock, &queue);
    let context = Arc::new(context);
    // The tasks end with this function and not with the shutdown, because the reconciles in
    // progress still need the watches.
    let mut tasks = JoinSet::new();
    spawn_watches(&mut tasks, &context);
    tasks.spawn(fail_readiness_on_shutdown(shutdown.clone(), vitals));
    tasks.spawn(enqueue_changes(context.clone(), queue.clone()));
    tasks.spawn(requeue_waiting_on_limit_change(context.clone()));
    let delayed = queue.clone();
    tasks.spawn(async move { clock_jump::watch_clock_jumps(|| clock.now(), &delayed).await });
    let worker = Worker::new(&context, &queue);
    tasks.spawn(worker.run_event_writer());
    let leading = run_when_elected(&worker, election, &shutdown);
    let result = run_while_tasks_live(Box::pin(leading), &mut tasks).await;
    tasks.shutdown().await;
    result
}

/// Runs until `leading` ends, or until a task does, which only a panic can cause.
async fn run_while_tasks_live(
    leading: impl Future<Output = Result<(), ControllerError>>,
    tasks: &mut JoinSet<()>,
) -> Result<(), ControllerError> {
    tokio::select! {
        result = leading => result,
        Some(_) = tasks.join_next() => Err(ControllerError::TaskEnded),
    }
}

fn spawn_watches(tasks: &mut JoinSet<()>, context: &Context) {
    let namespace = context.config.namespace.as_deref();
    let (client, vitals) = (&context.client, &context.config.vitals);
    // Never cancelled: they end with the tasks.
    let shutdown = CancellationToken::new();
    tasks.spawn(watch::run::<Sandbox>(
        watch::api(client, namespace),
        None,
        context.index.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    tasks.spawn(watch::run(
        watch::api(client, namespace),
        None,
        context.pools.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    tasks.spawn(watch::run(
        watch::api(client, namespace),
        None,
        context.snapshots.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    let (label, value) = (names::MANAGED_BY_LABEL, names::CONTROLLER_FIELD_MANAGER);
    tasks.spawn(watch::run(
        watch::api(client, namespace),
        Some(format!("{label}={value}")),
        context.pods.clone(),
        vitals.clone(),
        shutdown.clone(),
    ));
    if context.config.image_builds == ImageBuilds::Full {
        let (label, value) = (names::BUILD_MODE_LABEL, names::FULL_BUILD);
        tasks.spawn(watch::run(
            watch::api(client, namespace),
            Some(format!("{label}={value}")),
            context.builds.clone(),
            vitals.clone(),
            shutdown,
        ));
    }
}

/// Makes the process unready as soon as the shutdown begins.
async fn fail_readiness_on_shutdown(shutdown: CancellationToken, vitals: Arc<Diagnostics>) {
    shutdown.cancelled().await;
    vitals.health.begin_shutdown();
    std::future::pending::<()>().await;
}

/// Adds each changed Sandbox to the work queue, except after the controller's own update.
async fn enqueue_changes(context: Arc<Context>, queue: Arc<WorkQueue<Key>>) {
    let index = &context.index;
    let mut changes = index.changes();
    loop {
        match changes.recv().await {
            Ok(key) if context.memory.is_own_update(&key, index) => {}
            Ok(key) => queue.add(key),
            Err(RecvError::Lagged(_)) => enqueue_all(index, &queue),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Requeues the first waiting sandbox of each tenant when keys or limits change.
async fn requeue_waiting_on_limit_change(context: Arc<Context>) {
    let mut versions = context.config.tenants.versions();
    // The sender lives in the context, so this cannot fail.
    while versions.changed().await.is_ok() {
        context.quota.requeue_heads();
    }
}

/// Leads once the indexes are synced and the lease is acquired.
async fn run_when_elected(
    worker: &Arc<Worker>,
    election: Option<LeaderElection>,
    shutdown: &CancellationToken,
) -> Result<(), ControllerError> {
    let warm = wait_synced(&worker.context);
    if shutdown.run_until_cancelled(warm).await.is_none() {
        return Ok(());
    }
    let Some(mut election) = election else {
        lead(worker, shutdown).await;
        return Ok(());
    };
    let acquired = shutdown.run_until_cancelled(election.acquire()).await;
    if acquired.is_none() {
        // The lease may have been acquired at this very moment.
        election.release().await;
        return Ok(());
    }
    let result = tokio::select! {
        all_ended = lead(worker, shutdown) => Ok(all_ended),
        lost = election.renew_until_lost() => Err(ControllerError::from(lost)),
    };
    worker.context.metrics.leader.set(0);
    worker.context.pod_meter.end();
    // A lease whose reconciles have not all ended must expire instead.
    if result? {
        election.release().await;
    }
    Ok(())
}

/// Leads until shutdown. Returns whether all reconciles have ended.
async fn lead(worker: &Arc<Worker>, shutdown: &CancellationToken) -> bool {
    let context = &worker.context;
    let read = async {
        tokio::join!(
            cluster_probes::recall(context),
            pools::recovery::read_pods_of_pools(context),
        )
    };
    let Some((known, ())) = shutdown.run_until_cancelled(read).await else {
        return true;
    };
    run_leader_tasks(worker, &known, shutdown).await
}

/// Runs the tasks of the leader until shutdown. Returns whether all reconciles have ended.
async fn run_leader_tasks(
    worker: &Arc<Worker>,
    known: &ProbeRecords,
    shutdown: &CancellationToken,
) -> bool {
    let context = &worker.context;
    let pools = PoolReconciler::new(context.clone());
    let (sandboxes, pools, ..) = tokio::join!(
        worker.run(shutdown),
        pools.run(shutdown),
        shutdown.run_until_cancelled(Box::pin(image_builds::run(context))),
        cluster_probes::run(context, known, shutdown),
        snapshots::run(context, shutdown),
    );
    sandboxes && pools
}

async fn wait_synced(context: &Context) {
    let mut keys = context.config.tenants.versions();
    let loaded = keys.wait_for(|version| *version > 0);
    if timeout(API_KEYS_TIMEOUT, loaded).await.is_err() {
        tracing::warn!("cannot read API keys; quotas are not enforced yet");
    }
    while !context.index.wait_synced(Duration::from_secs(5)).await {
        tracing::info!("waiting for the first list of Sandboxes");
    }
    for mut synced in [context.pods.synced(), context.pools.synced()] {
        // The sender lives in the context, so this cannot fail.
        let _ = synced.wait_for(|done| *done).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicked_task_ends_the_controller() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("as a watch might") });
        let ended = run_while_tasks_live(std::future::pending(), &mut tasks).await;
        assert!(matches!(ended, Err(ControllerError::TaskEnded)));
    }
}
