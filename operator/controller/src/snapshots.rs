//! Snapshots of sandboxes (`docs/persistence.md`, "Snapshots and forks"): the leader asks the
//! supervisor of a running sandbox to copy its state to the volume, which stays until its snapshots
//! are deleted.

pub(crate) mod claim;
mod decision;
pub(crate) mod index;
pub(crate) mod source;
mod status;
mod take;

use std::sync::Arc;
use std::time::Duration;

use crds::SandboxSnapshot;
use jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::owned_objects::with_uid;
use shared::kubernetes::work_queue::MAX_OUTAGE_BACKOFF;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::decision::{Step, decide};
use crate::context::Context;
use crate::reconcile::observe::snapshot as observe;

/// Snapshots that are looked at or taken at once.
const MAX_CONCURRENT: usize = 64;
/// Interval at which a sandbox that starts is looked at.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after which a failed write is repeated.
const RETRY_DELAY: Duration = MAX_OUTAGE_BACKOFF;

/// Takes and deletes snapshots until shutdown.
pub(crate) async fn run(context: &Arc<Context>, shutdown: &CancellationToken) {
    let synced = context.snapshots.wait_synced();
    if shutdown.run_until_cancelled(synced).await.is_none() {
        return;
    }
    let queue = &context.snapshots.queue;
    queue.open();
    for key in context.snapshots.keys() {
        queue.add(key);
    }
    let mut tasks = JoinSet::new();
    let taking = async {
        loop {
            let (key, _) = queue.next().await;
            let context = context.clone();
            tasks.spawn(async move { reconcile_key(&context, key).await });
            while tasks.try_join_next().is_some() {}
            if tasks.len() >= MAX_CONCURRENT {
                tasks.join_next().await;
            }
        }
    };
    let _: Option<()> = shutdown.run_until_cancelled(taking).await;
}

async fn reconcile_key(context: &Context, key: Key) {
    let next = match reconcile(context, &key).await {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(%key, %error, "cannot handle a snapshot; retrying");
            Some(RETRY_DELAY)
        }
    };
    context.snapshots.queue.done(&key);
    if let Some(next) = next {
        context.snapshots.queue.add_at(key, Instant::now() + next);
    }
}

/// Does the next step of a snapshot. Returns the time until another one.
async fn reconcile(context: &Context, key: &Key) -> Result<Option<Duration>, CallError> {
    let Some(snapshot) = context.snapshots.get(key) else {
        return Ok(None);
    };
    let now = context.clock.now();
    let source = observe(context, &key.sibling(&snapshot.spec.sandbox), now);
    match decide(&snapshot, source.as_ref(), now) {
        Step::Delete => {
            delete(context, &snapshot).await?;
            Ok(None)
        }
        Step::Rest => Ok(time_until(expiry(&snapshot), now)),
        Step::Wait(message) => {
            status::wait(context, &snapshot, message).await?;
            Ok(Some(WAIT_INTERVAL))
        }
        Step::Fail(message) => {
            take::give_up(context, &snapshot, source.as_ref(), message).await?;
            Ok(time_until(expiry(&snapshot), now))
        }
        Step::Take { .. } if context.snapshots.has_earlier(key, &snapshot) => {
            status::wait(context, &snapshot, "an earlier snapshot is being taken").await?;
            Ok(Some(WAIT_INTERVAL))
        }
        Step::Take { source, pod } => {
            take::take(context, &snapshot, source, pod).await?;
            Ok(time_until(expiry(&snapshot), context.clock.now()))
        }
    }
}

/// Time at which a snapshot is deleted.
pub(crate) fn expiry(snapshot: &SandboxSnapshot) -> Option<Timestamp> {
    let after = Duration::from(snapshot.spec.delete_after?);
    let created_at = snapshot.creation_timestamp()?.0;
    let after = SignedDuration::try_from(after).ok();
    created_at
        .checked_add(after.filter(|after| !after.is_zero())?)
        .ok()
}

fn time_until(at: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    let left = at?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

async fn delete(context: &Context, snapshot: &SandboxSnapshot) -> Result<(), CallError> {
    let params = DeleteParams::default();
    let params = match snapshot.uid() {
        Some(uid) => params.preconditions(with_uid(&uid)),
        None => params,
    };
    match with_timeout(api(context, snapshot).delete(&snapshot.name_any(), &params)).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}

fn api(context: &Context, snapshot: &SandboxSnapshot) -> Api<SandboxSnapshot> {
    let namespace = snapshot.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}
