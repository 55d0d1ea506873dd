//! A Pod that is there to stay: is it lost, ready, hopeless, or on its way?

use crds::conditions::Reason;
use crds::names;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use jiff::Timestamp;

use super::quiet;
use super::rest::pause_by_itself;
use super::run::{CRASHES, lose, was_ready};
use super::wait::{reason_of, wait};
use super::{Action, Failure, Grace, Plan, Subject, deadline};
use crate::controller::facts::{Answer, ContainerState, Facts, PodFacts, PodPhase, TroubleKind};

/// A sandbox that ends three times in its first minutes is given up even if it was ready.
const YOUTH: std::time::Duration = std::time::Duration::from_mins(3);
/// How long trouble with image or configuration may last before the sandbox is given up.
const TROUBLE_GRACE: std::time::Duration = std::time::Duration::from_mins(2);

/// Looks after a Pod that is there to stay.
pub(super) fn attend(
    plan: &mut Plan,
    subject: &Subject<'_>,
    facts: &Facts,
    pod: &PodFacts,
    now: Timestamp,
) {
    let first = plan.status.pod_name.replace(pod.name.clone()).is_none();
    // The Pod knows its key; the spec may be ahead of it.
    plan.status.key_rotation = Some(pod.edition.key_rotation).filter(|n| *n > 0);
    if subject.entry.spec.workspace.is_some() {
        plan.status.workspace_claim = Some(names::workspace_claim(&subject.entry.key.name));
    }
    if let Some((reason, message)) = remains(pod) {
        lose(plan, &reason, &message);
        let lost = matches!(pod.phase, PodPhase::Unknown) || reason == "NodeLost";
        plan.delete(pod, if lost { Grace::None } else { Grace::Own });
        return;
    }
    count_restarts(plan, pod);
    plan.asks = pod.ip.is_some() && asks_anything(subject, pod);
    if is_ready(plan, subject, facts, pod) {
        ready(plan, subject, facts, pod, now);
    } else if let Some((reason, message, kind)) = hopeless(plan, pod, now) {
        plan.fail(reason, &message, kind);
        plan.delete(pod, Grace::Own);
    } else {
        if pod.lacks_claim() {
            plan.actions.push(Action::CreateClaim);
        }
        wait(plan, subject, facts, pod, first, now);
    }
}

/// A Pod that will never run again, and why.
fn remains(pod: &PodFacts) -> Option<(String, String)> {
    let (default, message) = match pod.phase {
        PodPhase::Failed => ("Failed", "the Pod failed"),
        PodPhase::Succeeded => ("Completed", "the Pod ended"),
        PodPhase::Unknown => ("NodeLost", "the Pod's node does not answer"),
        _ if pod.reason.as_deref() == Some("NodeLost") => ("NodeLost", "the Pod's node is lost"),
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
    // A replacement whose making was never reported. Its loss may have been.
    let unreported = pod.restarts_before > known;
    let noted = unreported && plan.status.reason == Some(Reason::PodReplaced);
    if unreported && !noted {
        plan.note_restart("Deleted");
    }
    if count > known.max(pod.restarts_before) {
        plan.note_restart(pod.container.last_end.as_deref().unwrap_or("Unknown"));
    }
    plan.status.restarts.count = count.max(known);
}

fn asks_anything(subject: &Subject<'_>, pod: &PodFacts) -> bool {
    let over = pod.container.state == ContainerState::BackingOff;
    !over && (pod.supervised || subject.port.is_some())
}

fn is_ready(plan: &Plan, subject: &Subject<'_>, facts: &Facts, pod: &PodFacts) -> bool {
    let alive = !matches!(
        pod.container.state,
        ContainerState::Ended | ContainerState::BackingOff
    );
    let kubelet = pod.supervised || pod.ready || pod.silent;
    let answers = match &facts.answer {
        _ if !pod.supervised && subject.port.is_none() => true,
        Some(answer) => *answer == Answer::Ready,
        // This process has not asked yet: what the status says holds until the contrary is known.
        None => plan.status.phase == Phase::Running && is_same_run(&subject.entry.status, pod),
    };
    alive && kubelet && answers && pod.ip.is_some()
}

/// Whether the status as it was written speaks of this Pod and of this run of its container. Times
/// are whole seconds, in which a container can be ready, end and start again: the count tells.
fn is_same_run(status: &SandboxStatus, pod: &PodFacts) -> bool {
    let Some(ready_at) = &status.ready_at else {
        return false;
    };
    let ContainerState::Running { started_at } = pod.container.state else {
        return false;
    };
    let before = |at: Option<Timestamp>| at.is_none_or(|at| at <= ready_at.0);
    status.pod_ip == pod.ip
        && pod.restarts() <= status.restarts.count
        && before(pod.created_at)
        && before(started_at)
}

fn ready(plan: &mut Plan, subject: &Subject<'_>, facts: &Facts, pod: &PodFacts, now: Timestamp) {
    if plan.status.phase != Phase::Running {
        plan.status.ready_at = Some(now.into());
    }
    plan.say(Phase::Running, Reason::Ready, remark(subject, pod));
    plan.status.pod_status = Some(PodStatus::Ready);
    plan.status.pod_ip.clone_from(&pod.ip);
    plan.status.node_name.clone_from(&pod.node);
    plan.status.started_at.get_or_insert(now.into());
    if let Some(by) = quiet::is_over(plan, subject, facts, now) {
        pause_by_itself(plan, by, now);
    }
}

/// What the owner of a running sandbox should know.
fn remark(subject: &Subject<'_>, pod: &PodFacts) -> Option<String> {
    let lost = subject.entry.spec.workspace.is_none();
    let lost = lost.then(|| "there is no workspace volume: files are lost on pause".to_owned());
    let silent = pod
        .silent
        .then(|| "its node has stopped reporting".to_owned());
    let notes = pod.edition.note.iter().cloned();
    let remarks: Vec<_> = notes.chain(lost).chain(silent).collect();
    (!remarks.is_empty()).then(|| remarks.join("; "))
}

/// Whether it was started so lately that having been ready in between means little: a command
/// without a port is ready as soon as it runs, and may end a moment later.
fn is_young(plan: &Plan, now: Timestamp) -> bool {
    let started = plan.status.started_at.as_ref().map_or(now, |t| t.0);
    deadline(started, Some(YOUTH)).is_some_and(|until| until > now)
}

/// Why this start is given up, if it is.
fn hopeless(plan: &mut Plan, pod: &PodFacts, now: Timestamp) -> Option<(Reason, String, Failure)> {
    if pod.ends() >= CRASHES && (!was_ready(plan) || is_young(plan, now)) {
        let end = pod.container.end();
        let message = format!("the command ended {} times, last with {end}", pod.ends());
        return Some((Reason::CrashLoop, message, Failure::CrashLoop));
    }
    let trouble = pod.trouble.as_ref()?;
    let until = deadline(trouble.since.unwrap_or(now), Some(TROUBLE_GRACE));
    // What has been ready once has work to lose: it is not given up for a registry's bad hour.
    // Nor is what only lacks what somebody else makes.
    let lacks = trouble.kind == TroubleKind::Missing;
    let patient = was_ready(plan) || lacks || until.is_none_or(|until| until > now);
    if trouble.kind != TroubleKind::ImageName && patient {
        plan.look_at(until.filter(|until| *until > now));
        return None;
    }
    Some((reason_of(trouble), trouble.message.clone(), Failure::Other))
}
