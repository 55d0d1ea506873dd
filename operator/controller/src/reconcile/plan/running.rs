//! Sandboxes with desired state `Running`: begin of a start, and replacement of lost Pods.

use crds::conditions::{ConditionType, Reason};
use crds::names;
use crds::sandbox::{PauseReason, Phase, PodStatus, Restarts, SandboxStatus};
use jiff::Timestamp;

use super::decision::{Action, CRASH_LOOP_THRESHOLD, FailureKind, Plan, PlanInput, deadline_after};
use super::existing_pod::plan_existing_pod;
use super::pause_stop::stop_when_expired;
use super::starting::enforce_start_timeout;
use super::status::condition_since;
use crate::facts::{Facts, PodFacts, QuotaDecision};

/// Plans for desired state `Running`.
pub(super) fn plan_running(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    let status = &input.entry.status;
    let known = status.observed_generation == Some(input.entry.generation);
    let restarts = pool_template_changed(input, facts) || is_restart_due(plan, input, now);
    if status.phase == Phase::Failed && known && !restarts {
        return plan_failed(plan, input, facts, now);
    }
    let starts = !matches!(status.phase, Phase::Starting | Phase::Running);
    if starts {
        begin_start(plan, facts, now);
    }
    // The Pod of a start whose status was not written belongs to this start. So does the Pod of a
    // cancelled pause. Any other Pod is left over from before the pause or the failure.
    let cancelled = status.phase == Phase::Pausing && is_automatic(status.pause_reason);
    let kept = cancelled || is_pod_of_unreported_start(status, facts);
    let leftover = starts && status.phase != Phase::Pending && !kept;
    match &facts.pod {
        None => plan_missing_pod(plan, input, facts, now),
        Some(pod) if leftover || pod.grace_ends_at.is_some() => await_pod_deletion(plan, pod, now),
        Some(pod) => plan_existing_pod(plan, input, facts, pod, now),
    }
}

fn is_automatic(pause: Option<PauseReason>) -> bool {
    pause.is_some_and(|by| by != PauseReason::Requested)
}

/// Returns whether the Pod is newer than the pause, stop or failure: the status write of its start
/// was lost.
fn is_pod_of_unreported_start(status: &SandboxStatus, facts: &Facts) -> bool {
    let rest = match status.phase {
        Phase::Paused => status.paused_at.as_ref().map(|at| at.0),
        Phase::Stopped => status.stopped_at.as_ref().map(|at| at.0),
        Phase::Failed => condition_since(status, ConditionType::Failed, true),
        _ => None,
    };
    let made = facts.pod.as_ref().and_then(|pod| pod.created_at);
    rest.zip(made).is_some_and(|(rest, made)| made > rest)
}

/// Returns whether the pool has another template than the one the sandbox failed with. Sessions are
/// excluded: their client may have started another sandbox. So are sandboxes that keep a revision.
fn pool_template_changed(input: &PlanInput<'_>, facts: &Facts) -> bool {
    let failed_with = input.entry.status.pool_revision.as_ref();
    let differs = failed_with.zip(facts.pool_revision.as_ref());
    let follows = input.entry.session().is_none() && input.entry.status.pool.is_none();
    follows && differs.is_some_and(|(old, new)| old != new)
}

/// Returns whether a failed sandbox has been asked to start again. A time in the future is waited
/// for.
fn is_restart_due(plan: &mut Plan, input: &PlanInput<'_>, now: Timestamp) -> bool {
    let requested = input
        .entry
        .wake_at
        .filter(|_| input.entry.is_restart_requested());
    plan.requeue_no_later_than(requested.filter(|at| *at > now));
    requested.is_some_and(|at| at <= now)
}

/// Deletes the Pod of a failed sandbox, which waits for a changed spec or a wake.
fn plan_failed(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    if let Some(pod) = &facts.pod {
        plan.ensure_pod_deleted(pod, now);
    }
    let failed = condition_since(&plan.status, ConditionType::Failed, true);
    let until = failed.and_then(|at| deadline_after(at, input.deadlines.delete_paused_after));
    stop_when_expired(plan, input, until, now);
}

/// Begins a new start: resets what the status says about the last one.
fn begin_start(plan: &mut Plan, facts: &Facts, now: Timestamp) {
    let status = &mut plan.status;
    // A start that is rejected repeatedly has one deadline. A start whose status was not written
    // began with its Pod.
    let waited =
        status.reason == Some(Reason::QuotaExceeded) && facts.quota == QuotaDecision::Admitted;
    if status.phase != Phase::Pending || waited {
        status.started_at = Some(now.into());
    } else if status.started_at.is_none() {
        let pod = facts.pod.as_ref().and_then(|pod| pod.created_at);
        status.started_at = Some(pod.unwrap_or(now).into());
    }
    status.restarts = Restarts::default();
    status.paused_at = None;
    status.pause_reason = None;
    status.stopped_at = None;
    status.pool_revision = None;
    plan.clear_pod_fields();
    plan.set_phase(Phase::Starting, Reason::CreatingPod, None);
    plan.status.pod_status = Some(PodStatus::NotFound);
}

/// Plans the Pod of a sandbox that has none.
fn plan_missing_pod(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) {
    if facts.pool_missing {
        let pool = input.entry.spec.pool.as_deref().unwrap_or_default();
        let message = format!("SandboxPool {pool} does not exist");
        plan.set_phase(Phase::Pending, Reason::PoolNotFound, Some(message));
        plan.status.started_at = None;
        plan.status.pod_status = Some(PodStatus::NotFound);
        return;
    }
    if !is_admitted(plan, input, facts, now) {
        return;
    }
    // Of a Pod that vanished before the first status only the deletion is known.
    let lost = plan.status.pod_name.is_some() || (input.has_no_status() && facts.had_lost_pod);
    if lost && !may_replace_pod(plan, facts, now) {
        return;
    }
    if input.entry.spec.workspace.is_some() {
        plan.actions.push(Action::CreateClaim);
    }
    plan.record_claim(input);
    let restarts = plan.status.restarts.count;
    plan.actions.push(Action::CreatePod { restarts });
    if plan.status.reason != Some(Reason::PodReplaced) {
        plan.set_phase(Phase::Starting, Reason::CreatingPod, None);
    }
    plan.status.pod_name = Some(names::pod(&input.entry.key.name));
    plan.status.pod_ip = None;
    plan.status.node_name = None;
    plan.status.pod_status = Some(PodStatus::Pending);
    plan.write_status = plan.pod_lost || !input.has_no_status();
    enforce_start_timeout(plan, input, now);
}

/// Returns whether the quota of its API key admits the sandbox. The start timeout applies while it
/// is queued.
fn is_admitted(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts, now: Timestamp) -> bool {
    match &facts.quota {
        QuotaDecision::Admitted => return true,
        QuotaDecision::Exceeded(why) => plan.fail(Reason::QuotaExceeded, why, FailureKind::Other),
        QuotaDecision::Queued(why) => {
            plan.set_phase(Phase::Pending, Reason::QuotaExceeded, Some(why.clone()));
            plan.clear_pod_fields();
            plan.status.pod_status = Some(PodStatus::Pending);
            enforce_start_timeout(plan, input, now);
        }
    }
    false
}

/// Counts the loss of a Pod. Returns whether a replacement may be created now.
fn may_replace_pod(plan: &mut Plan, facts: &Facts, now: Timestamp) -> bool {
    if plan.status.reason != Some(Reason::PodReplaced) {
        plan.mark_pod_lost("Deleted", "the Pod was deleted");
    }
    if facts.replace_at.is_some_and(|at| at > now) {
        plan.requeue_no_later_than(facts.replace_at);
        return false;
    }
    plan.status.restarts.count += 1;
    if plan.status.restarts.count >= CRASH_LOOP_THRESHOLD && !plan.has_been_ready() {
        let message = "the Pod was lost three times before the sandbox was ready";
        plan.fail(Reason::CrashLoop, message, FailureKind::CrashLoop);
        return false;
    }
    plan.pod_lost = true;
    true
}

/// Waits for a terminating Pod, which must be gone before another one is created.
fn await_pod_deletion(plan: &mut Plan, pod: &PodFacts, now: Timestamp) {
    if plan.status.pod_name.is_some() && plan.status.reason != Some(Reason::PodReplaced) {
        let message = "the Pod is being deleted";
        match &pod.disruption {
            Some(why) => plan.mark_pod_lost(why, &format!("{message}: {why}")),
            None => plan.mark_pod_lost("Deleted", message),
        }
    }
    plan.status.pod_status = Some(PodStatus::Pending);
    plan.ensure_pod_deleted(pod, now);
}
