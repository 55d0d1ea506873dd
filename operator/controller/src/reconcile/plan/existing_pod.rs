//! Decisions about a Pod that is not being deleted: lost, ready, failed or still starting. The
//! rules of readiness are those of `docs/lifecycle.md`, "Readiness".

use std::time::Duration;

use crds::conditions::Reason;
use crds::contract::control::MIN_RUN_SECONDS;
use crds::names;
use crds::sandbox::{Phase, PodStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decision::{CLAIMED_POD_SILENT, CRASH_LOOP_THRESHOLD, RESIZE_FAILED};
use super::status::UNKNOWN_END;
use super::{Action, DeletionGrace, FailureKind, Planner, deadline_after};
use crate::facts::{
    ContainerState, PodFacts, PodPhase, ProbeResult, ResizeProblem, StartProblemKind,
};

/// Time after a start in which a crash loop fails the sandbox even if it was ready in between: a
/// command without a port counts as ready although it may terminate soon after.
const CRASH_LOOP_WINDOW: Duration = Duration::from_mins(3);
/// Time that a start problem (image, configuration) may last before the sandbox fails.
const START_PROBLEM_GRACE: Duration = Duration::from_mins(2);
/// Minimum run of a container that nothing probes before it counts as ready.
const MIN_RUN: Duration = Duration::from_secs(MIN_RUN_SECONDS);

impl Planner<'_> {
    /// Plans for a Pod that is not being deleted.
    pub(super) fn plan_existing_pod(&mut self, pod: &PodFacts) {
        let status = &mut self.plan.status;
        let first = status.pod_name.replace(pod.name.clone()).is_none();
        // The Pod has the key that it was created with; the spec may be newer.
        status.key_rotation = Some(pod.key_rotation).filter(|n| *n > 0);
        status.warm = pod.was_warm();
        self.adopt_claim(pod);
        self.record_claim();
        let mechanism = pod.persistence.as_ref().map(|persistence| persistence.root);
        let recorded = &mut self.plan.status.root_mechanism;
        *recorded = recorded.or(mechanism);
        if let Some((reason, message)) = lost_pod_reason(pod) {
            self.mark_pod_lost(&reason, &message);
            let node_lost = pod.phase == PodPhase::Unknown || reason == "NodeLost";
            let grace = if node_lost {
                DeletionGrace::Force
            } else {
                DeletionGrace::PodDefault
            };
            return self.delete_pod(pod, grace);
        }
        // The sandbox went on in a Pod that was created for its resume, and keeps it: it has the full
        // limits.
        let begins_empty = pod.created_in_pause.is_none();
        if let Some(problem) = final_resize_problem(pod).filter(|_| begins_empty) {
            let message = format!("the Pod cannot get its resources: {}", problem.message);
            self.mark_pod_lost(RESIZE_FAILED, &message);
            return self.delete_pod(pod, DeletionGrace::PodDefault);
        }
        if self.facts.readiness == Some(ProbeResult::OtherOwner) {
            self.mark_pod_lost("OtherOwner", "the Pod was initialized for another sandbox");
            return self.delete_pod(pod, DeletionGrace::PodDefault);
        }
        let has_been_ready = self.plan.status.pod_uid.as_ref() == Some(&pod.uid);
        if self.facts.readiness == Some(ProbeResult::Silent) && !has_been_ready {
            self.mark_pod_lost(CLAIMED_POD_SILENT, "the claimed warm Pod does not answer");
            return self.delete_pod(pod, DeletionGrace::PodDefault);
        }
        self.count_restarts(pod);
        // A probe sends the init message, after which the Pod no longer waits: the start is written
        // first.
        self.plan.probe_readiness = self.waiting_pod().is_none()
            && pod.ip.is_some()
            && pod.container.state != ContainerState::BackingOff
            && (pod.supervised || self.input.probe.port.is_some());
        let runs_until = self.min_run_ends_at(pod);
        if self.is_ready(pod) && runs_until.is_none() {
            self.set_running(pod);
        } else if let Some((reason, message, kind)) = self.start_failure(pod) {
            self.fail(reason, &message, kind);
            self.delete_pod(pod, DeletionGrace::PodDefault);
        } else {
            if self.is_missing_claim(pod) {
                self.plan.actions.push(Action::CreateClaim);
            }
            if pod.is_missing_environment() {
                self.plan.actions.push(Action::CreateSecret);
            }
            self.requeue_no_later_than(runs_until);
            self.report_starting(pod, first);
        }
    }

    /// Makes the PVC of a Pod that was warm that of the sandbox, before the status names it.
    fn adopt_claim(&mut self, pod: &PodFacts) {
        let name = names::workspace_claim(&pod.name);
        let is_adopted = self.facts.adopted_claim.as_ref() == Some(&name);
        let is_known = is_adopted || self.plan.status.workspace_claim.is_some();
        if pod.was_warm() && self.input.entry.spec.workspace.is_some() && !is_known {
            self.plan.actions.push(Action::AdoptClaim { name });
        }
    }

    pub(super) fn is_missing_claim(&self, pod: &PodFacts) -> bool {
        let claim = self.plan.status.workspace_claim.as_deref();
        claim.is_some_and(|claim| pod.is_missing_claim(claim))
    }

    fn count_restarts(&mut self, pod: &PodFacts) {
        let known = self.plan.status.restarts.count;
        let count = pod.restarts();
        // A replacement whose creation was not written to the status. The loss may have been.
        if pod.restarts_before > known && self.plan.status.reason != Some(Reason::PodReplaced) {
            self.record_restart("Deleted");
        }
        let reason = pod.container.last_termination.as_deref();
        if count > known.max(pod.restarts_before) {
            self.record_restart(reason.unwrap_or(UNKNOWN_END));
            self.count_unidentified_processes(pod);
        }
        // The kubelet may count a restart before it reports the end.
        if count == known
            && pod.container.restarts > 0
            && let Some(reason) = reason
        {
            self.complete_restart(reason);
        }
        self.plan.status.restarts.count = count.max(known);
    }

    fn is_ready(&self, pod: &PodFacts) -> bool {
        let kubelet = pod.supervised || pod.ready || pod.node_silent;
        let answers = match &self.facts.readiness {
            _ if self.is_unprobed(pod) => true,
            Some(answer) => *answer == ProbeResult::Ready,
            // No probe result in this process yet: the written status holds until a probe
            // contradicts it.
            None => self.plan.status.phase == Phase::Running && self.is_same_run(pod),
        };
        !pod.container.has_ended() && kubelet && answers && pod.ip.is_some()
    }

    fn is_unprobed(&self, pod: &PodFacts) -> bool {
        !pod.supervised && self.input.probe.port.is_none()
    }

    /// Returns whether the written status belongs to this Pod and container run. Uid and restart
    /// count tell; times do not, because kubelet and controller have different clocks.
    fn is_same_run(&self, pod: &PodFacts) -> bool {
        let status = &self.input.entry.status;
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        let same_pod = status.pod_uid.as_ref() == Some(&pod.uid);
        runs && same_pod && pod.restarts() <= status.restarts.count
    }

    /// End of the minimum run of a container that nothing probes, while it is in the future. The
    /// start is a time of the kubelet, whose clock may be ahead: by more than the minimum run, it
    /// is ignored.
    fn min_run_ends_at(&self, pod: &PodFacts) -> Option<Timestamp> {
        let started_at = pod
            .container
            .running_since()
            .filter(|_| self.is_unprobed(pod))?;
        let until = deadline_after(started_at, Some(MIN_RUN))?;
        let latest = deadline_after(self.now, Some(2 * MIN_RUN))?;
        (until > self.now && until <= latest).then_some(until)
    }

    /// Records the stages of the start. Times of Kubernetes have whole seconds.
    fn record_stages(&mut self, pod: &PodFacts) {
        let status = &mut self.plan.status;
        let began = status.started_at.as_ref().map(|at| at.0.as_second());
        let of_this_start = |at: &Timestamp| began.is_some_and(|began| at.as_second() >= began);
        let stage = |at: Option<Timestamp>| at.filter(of_this_start).map(Time);
        status.scheduled_at = stage(pod.scheduled_at);
        status.container_started_at = stage(pod.container.running_since());
    }

    fn set_running(&mut self, pod: &PodFacts) {
        // The sandbox is ready first: a resize takes the kubelet about a second.
        let is_refused = final_resize_problem(pod).is_some();
        if pod.is_small && !is_refused && self.plan.status.phase == Phase::Running {
            self.plan.actions.push(Action::ResizePod);
        }
        if self.plan.status.phase != Phase::Running {
            self.plan.status.ready_at = Some(self.now.into());
            self.record_stages(pod);
        }
        self.record_processes(pod);
        self.record_restored(pod);
        self.set_phase(
            Phase::Running,
            Reason::Ready,
            Some(self.running_message(pod)),
        );
        let status = &mut self.plan.status;
        status.pod_status = Some(PodStatus::Ready);
        // The pool revision of a sandbox that becomes ready is kept. Before that it has no work to
        // lose and follows the pool.
        if status.pool.as_ref().map(|kept| &kept.name) != self.input.entry.spec.pool.as_ref() {
            status.pool = self.facts.pool.as_deref().cloned();
        }
        status.pod_uid = Some(pod.uid.clone());
        status.pod_ip.clone_from(&pod.ip);
        status.node_name.clone_from(&pod.node);
        status.started_at.get_or_insert(self.now.into());
        if let Some(by) = self.due_pause() {
            self.begin_automatic_pause(by);
        }
    }

    /// Message of a running sandbox: the basis of its readiness, and notes for its owner.
    fn running_message(&self, pod: &PodFacts) -> String {
        let probe = &self.input.probe;
        let basis = match (pod.supervised, probe.port, &probe.path) {
            (true, Some(port), Some(path)) => format!("port {port} answers GET {path}"),
            (true, Some(port), None) => format!("port {port} accepts connections"),
            (true, None, _) => {
                format!("the command has run for {MIN_RUN_SECONDS} s; it has no port")
            }
            (false, Some(port), _) => {
                format!("the Pod is Ready and port {port} accepts connections")
            }
            (false, None, _) => {
                format!("the Pod is Ready and has run for {MIN_RUN_SECONDS} s; it has no port")
            }
        };
        let lost = self.input.entry.spec.workspace.is_none();
        let deferred = pod.resize_problem.as_ref().map(|problem| {
            let when = if problem.is_final {
                "not raised"
            } else {
                "raised later"
            };
            format!("resources are {when}: {}", problem.message)
        });
        let notes = [
            pod.note.as_deref(),
            deferred.as_deref(),
            lost.then_some("no workspace volume: files are lost on pause"),
            pod.node_silent.then_some("the node is not reporting"),
        ];
        let notes = notes.into_iter().flatten();
        notes.fold(basis, |message, note| message + "; " + note)
    }

    /// Reason, message and kind of a start that has failed.
    fn start_failure(&mut self, pod: &PodFacts) -> Option<(Reason, String, FailureKind)> {
        let crashes = pod.container.crash_count();
        let window = deadline_after(self.started_at(), Some(CRASH_LOOP_WINDOW));
        let in_window = window.is_some_and(|until| until > self.now);
        if crashes >= CRASH_LOOP_THRESHOLD && (!self.was_ready() || in_window) {
            let end = pod.container.describe_termination();
            let message =
                format!("the command terminated {crashes} times; last termination: {end}");
            return Some((Reason::CrashLoop, message, FailureKind::CrashLoop));
        }
        let problem = pod.start_problem.as_ref()?;
        let failure = (
            problem.reason(),
            problem.message.clone(),
            FailureKind::Other,
        );
        if problem.is_permanent() {
            return Some(failure);
        }
        let since = problem.since.unwrap_or(self.now);
        let is_over = self.is_due(deadline_after(since, Some(START_PROBLEM_GRACE)));
        // A sandbox that was ready holds work: an outage of a registry must not fail it. A missing
        // Secret or ConfigMap may still be created.
        let tolerated = self.has_been_ready() || problem.kind == StartProblemKind::MissingReference;
        (is_over && !tolerated).then_some(failure)
    }
}

/// Reason for which the Pod never gets the resources of its sandbox.
fn final_resize_problem(pod: &PodFacts) -> Option<&ResizeProblem> {
    pod.resize_problem
        .as_ref()
        .filter(|problem| problem.is_final)
}

/// Reason and message of a Pod that will not run again.
pub(super) fn lost_pod_reason(pod: &PodFacts) -> Option<(String, String)> {
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
