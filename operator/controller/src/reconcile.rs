//! Reconciles one Sandbox: observe, plan, build, apply, write status.

pub mod build;
pub mod init_message;
pub mod plan;

pub(crate) mod apply;
mod create;
mod error;
mod failure_log;
pub(crate) mod isolation;
pub(crate) mod observe;
mod status_patch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::conditions::Reason;
use crds::contract::persistence::PersistenceLevel;
use crds::names;
use crds::sandbox::SandboxStatus;
use jiff::Timestamp;

use self::apply::apply;
use self::error::ApplyError;
pub(crate) use self::error::ReconcileError;
use self::observe::{Observed, observe};
use self::plan::{Action, DeletionGrace, Plan, plan, status_after_rejection};
use self::status_patch::patch_status;
use crate::context::Context;
use crate::facts::{ProbeResult, WarmMatch, WarmSupply};
use crate::sandbox_memory::PerSandbox as _;
use shared::index::{Entry, Key};
use shared::kubernetes::owned_objects::CreateError;

/// Reconciles one Sandbox. Returns the time of the next reconcile.
pub(crate) async fn reconcile(
    context: &Arc<Context>,
    key: &Key,
) -> Result<Option<Timestamp>, ReconcileError> {
    let now = context.clock.now();
    let Some(observed) = observe(context, key, now) else {
        context.sandbox_states.forget(key);
        return release_orphan(context, key, now).await;
    };
    if let Some(other) = other_installation(context, &observed.entry) {
        return Err(ReconcileError::OtherInstallation(other.to_owned()));
    }
    let plan = plan(&observed.plan_input(), &observed.facts, now);
    record_demand(context, &observed, &plan);
    record_useless_claim(context, &observed);
    if let Some(pod) = &observed.facts.pod {
        context.injection.record_pod(pod);
    }
    join_waiting(context, &observed, &plan);
    let (requeue_at, writes, lost) = (plan.requeue_at, plan.write_status, plan.pod_lost);
    // On the heap: the future of a reconcile would exceed 16 KiB.
    let status = match Box::pin(apply(context, &observed, plan)).await {
        Ok(status) => status,
        Err(ApplyError::ClaimKept(_)) if observed.entry.status.workspace_claim.is_none() => {
            return name_second_claim(context, &observed, now).await;
        }
        Err(error) => return reject(context, &observed, error, requeue_at, now).await,
    };
    if writes {
        patch_status(context, &observed.entry, &status).await?;
        if status.message != observed.entry.status.message {
            context.memory.record_message(key, now);
        }
    }
    if lost {
        context.memory.record_replacement(key, now);
    }
    Ok(requeue_at)
}

/// Records that a pool was asked for a warm Pod, once for each Pod or refusal.
fn record_demand(context: &Context, observed: &Observed, plan: &Plan) {
    let pool = match &observed.facts.warm {
        WarmSupply::None => return,
        WarmSupply::Ready(WarmMatch { pool, .. }) | WarmSupply::Exhausted { pool, .. } => pool,
    };
    let is_start =
        |action: &Action| matches!(action, Action::ClaimPod { .. } | Action::CreatePod { .. });
    let has_missed = |action: &Action| matches!(action, Action::CreatePod { .. });
    let refused = Some(Reason::PoolExhausted);
    let is_refused = plan.status.reason == refused && observed.entry.status.reason != refused;
    let pool = observed.entry.key.sibling(pool);
    if plan.actions.iter().any(has_missed) {
        context.metrics.record_claim("missed");
        context.warm_pods.record_miss(&pool);
    }
    let grows = context.pools.get(&pool).is_some_and(|pool| pool.grows());
    if grows && (is_refused || plan.actions.iter().any(is_start)) {
        context.demand.record_request(&pool);
    }
}

/// Counts a claimed Pod that belongs to another sandbox or does not answer, before it is deleted.
fn record_useless_claim(context: &Context, observed: &Observed) {
    let pod = observed.facts.pod.as_ref();
    let outcome = match observed.facts.readiness {
        Some(ProbeResult::OtherOwner) => "other_owner",
        Some(ProbeResult::Silent) => "silent",
        _ => return,
    };
    if pod.is_some_and(|pod| pod.grace_ends_at.is_none()) {
        context.metrics.record_claim(outcome);
    }
}

/// Keeps the place of a sandbox among those that wait for a warm Pod.
fn join_waiting(context: &Context, observed: &Observed, plan: &Plan) {
    let entry = &observed.entry;
    match &observed.facts.warm {
        WarmSupply::Exhausted { pool, .. }
            if plan.status.reason == Some(Reason::WaitingForWarmPod) =>
        {
            context.waiting.join(&entry.key.sibling(pool), entry);
        }
        _ => context.waiting.forget(&entry.key),
    }
}

/// Force-deletes the terminating Pod of a deleted Sandbox if its node does not confirm the deletion.
/// The PVC would wait for the Pod as long as the node is away.
async fn release_orphan(
    context: &Context,
    key: &Key,
    now: Timestamp,
) -> Result<Option<Timestamp>, ReconcileError> {
    let Some(pod) = context.pods.orphan(key, None) else {
        return Ok(None);
    };
    let until = plan::force_deletion_time(&pod);
    if until.is_none_or(|until| until > now) {
        return Ok(until);
    }
    apply::delete_pod(context, key, None, &pod, DeletionGrace::Force).await?;
    Ok(None)
}

/// Installation that manages this Sandbox, if it is another one. Two controllers with different
/// settings would overwrite each other's status without end.
fn other_installation<'a>(context: &Context, entry: &'a Entry) -> Option<&'a str> {
    let own = context.installation.as_deref()?;
    let marked = entry.status.installation.as_deref();
    marked.filter(|installation| *installation != own)
}

/// Records another name for the PVC, which the next reconcile creates.
async fn name_second_claim(
    context: &Context,
    observed: &Observed,
    now: Timestamp,
) -> Result<Option<Timestamp>, ReconcileError> {
    let entry = &observed.entry;
    let name = names::second_workspace_claim(&entry.key.name, &entry.uid);
    let status = SandboxStatus {
        workspace_claim: Some(name),
        has_state_volume: observed.level > PersistenceLevel::Workspace,
        ..entry.status.clone()
    };
    patch_status(context, entry, &status).await?;
    Ok(Some(now))
}

/// Reports a rejection in the status; other errors are retried.
async fn reject(
    context: &Context,
    observed: &Observed,
    error: ApplyError,
    requeue_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, ReconcileError> {
    if let ApplyError::Create(CreateError::NamespaceTerminating(_)) = error {
        // The Sandbox is about to be deleted with its namespace; the watch will report it.
        return Ok(None);
    }
    let Some(rejection) = error.rejection() else {
        return Err(error.into());
    };
    let status = status_after_rejection(&observed.plan_input(), &observed.facts, &rejection, now);
    patch_status(context, &observed.entry, &status).await?;
    if rejection.is_terminal {
        return Ok(None);
    }
    let key = &observed.entry.key;
    context.memory.record_own_update(key, &context.index);
    Err(ReconcileError::Rejected { error, requeue_at })
}
