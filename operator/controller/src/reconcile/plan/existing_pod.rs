//! Decisions about a Pod that is not being deleted: lost, ready, failed or still starting.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus};
use jiff::Timestamp;

use super::decision::{
    Action, CRASH_LOOP_THRESHOLD, DeletionGrace, FailureKind, Plan, PlanInput, deadline_after,
};
use super::idle;
use super::pause_stop::begin_automatic_pause;
use super::readiness::{is_probeable, is_ready, min_run_ends_at, status_note};
use super::starting::{reason_of, report_starting};
use crate::facts::{Facts, PodFacts, PodPhase, StartProblemKind};

/// Time after a start in which a crash loop fails the sandbox even if it was ready in between.
const CRASH_LOOP_WINDOW: std::time::Duration = std::time::Duration::from_mins(3);
/// Time that a start problem (image, configuration) may last before the sandbox fails.
const START_PROBLEM_GRACE: std::time::Duration = std::time::Duration::from_mins(2);

/// Plans for a Pod that is not being deleted.
pub(super) fn plan_existing_pod(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    pod: &PodFacts,
    now: Timestamp,
) {
    let first = plan.status.pod_name.replace(pod.name.clone()).is_none();
    // The Pod has the key that it was created with; the spec may be newer.
    plan.status.key_rotation = Some(pod.annotations.key_rotation).filter(|n| *n > 0);
    plan.record_claim(input);
    if let Some((reason, message)) = lost_pod_reason(pod) {
        plan.mark_pod_lost(&reason, &message);
        let lost = matches!(pod.phase, PodPhase::Unknown) || reason == "NodeLost";
        plan.delete_pod(
            pod,
            if lost {
                DeletionGrace::Force
            } else {
                DeletionGrace::PodDefault
            },
        );
        return;
    }
    count_restarts(plan, pod);
    plan.probe_readiness = pod.ip.is_some() && is_probeable(input, pod);
    let runs_until = min_run_ends_at(input, pod, now);
    if is_ready(plan, input, facts, pod) && runs_until.is_none() {
        set_running(plan, input, facts, pod, now);
    } else if let Some((reason, message, kind)) = start_failure(plan, pod, now) {
        plan.fail(reason, &message, kind);
        plan.delete_pod(pod, DeletionGrace::PodDefault);
    } else {
        if pod.is_missing_claim() {
            plan.actions.push(Action::CreateClaim);
        }
        plan.requeue_no_later_than(runs_until);
        report_starting(plan, input, facts, pod, first, now);
    }
}

/// Reason and message of a Pod that will not run again.
fn lost_pod_reason(pod: &PodFacts) -> Option<(String, String)> {
    let (default, message) = match pod.phase {
        PodPhase::Failed => ("Failed", "the Pod failed"),
        PodPhase::Succeeded => ("Completed", "the Pod terminated"),
        PodPhase::Unknown => ("NodeLost", "the node of the Pod does not respond"),
        _ if pod.reason.as_deref() == Some("NodeLost") => {
            ("NodeLost", "the node of the Pod is lost")
        }
        _ => return None,
    };
    let reason = pod.reason.as_deref().unwrap_or(default).to_owned();
    let message = match &pod.message {
        Some(detail) => format!("{message}: {reason}: {detail}"),
        None => format!("{message}: {reason}"),
    };
    Some((reason, message))
}

fn count_restarts(plan: &mut Plan, pod: &PodFacts) {
    let known = plan.status.restarts.count;
    let count = pod.restarts();
    // A replacement whose creation was not written to the status. The loss may have been.
    let unreported = pod.restarts_before > known;
    let noted = unreported && plan.status.reason == Some(Reason::PodReplaced);
    if unreported && !noted {
        plan.record_restart("Deleted");
    }
    if count > known.max(pod.restarts_before) {
        plan.record_restart(
            pod.container
                .last_termination
                .as_deref()
                .unwrap_or("Unknown"),
        );
    }
    plan.status.restarts.count = count.max(known);
}

fn set_running(
    plan: &mut Plan,
    input: &PlanInput<'_>,
    facts: &Facts,
    pod: &PodFacts,
    now: Timestamp,
) {
    if plan.status.phase != Phase::Running {
        plan.status.ready_at = Some(now.into());
    }
    plan.set_phase(Phase::Running, Reason::Ready, Some(status_note(input, pod)));
    plan.status.pod_status = Some(PodStatus::Ready);
    keep_pool_revision(plan, input, facts);
    plan.status.pod_uid = Some(pod.uid.clone());
    plan.status.pod_ip.clone_from(&pod.ip);
    plan.status.node_name.clone_from(&pod.node);
    plan.status.started_at.get_or_insert(now.into());
    if let Some(by) = idle::due_pause(plan, input, facts, now) {
        begin_automatic_pause(plan, by, now);
    }
}

/// Records the pool revision of a sandbox that becomes ready. Before that it has no work to lose
/// and follows the pool.
fn keep_pool_revision(plan: &mut Plan, input: &PlanInput<'_>, facts: &Facts) {
    let name = input.entry.spec.pool.as_ref();
    if plan.status.pool.as_ref().map(|kept| &kept.name) != name {
        plan.status.pool = facts.pool.as_deref().cloned();
    }
}

/// Returns whether the start is so recent that readiness in between proves little: a command
/// without a port counts as ready although it may terminate soon after.
fn is_in_crash_loop_window(plan: &Plan, now: Timestamp) -> bool {
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    deadline_after(started, Some(CRASH_LOOP_WINDOW)).is_some_and(|until| until > now)
}

/// Reason, message and kind of a start that has failed.
fn start_failure(
    plan: &mut Plan,
    pod: &PodFacts,
    now: Timestamp,
) -> Option<(Reason, String, FailureKind)> {
    if pod.crash_count() >= CRASH_LOOP_THRESHOLD
        && (!plan.was_ready() || is_in_crash_loop_window(plan, now))
    {
        let end = pod.container.describe_termination();
        let message = format!(
            "the command terminated {} times; last termination: {end}",
            pod.crash_count()
        );
        return Some((Reason::CrashLoop, message, FailureKind::CrashLoop));
    }
    let problem = pod.start_problem.as_ref()?;
    let until = deadline_after(problem.since.unwrap_or(now), Some(START_PROBLEM_GRACE));
    // A sandbox that was ready holds work: an outage of a registry must not fail it. A missing
    // Secret or ConfigMap may still be created.
    let is_missing_reference = problem.kind == StartProblemKind::MissingReference;
    let tolerated =
        plan.has_been_ready() || is_missing_reference || until.is_none_or(|until| until > now);
    if problem.kind != StartProblemKind::ImageName && tolerated {
        plan.requeue_no_later_than(until.filter(|until| *until > now));
        return None;
    }
    Some((
        reason_of(problem),
        problem.message.clone(),
        FailureKind::Other,
    ))
}
