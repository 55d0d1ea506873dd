//! Status of a sandbox that is not ready yet, and the start timeout.

use std::time::Duration;

use crds::conditions::{ConditionType, Reason};
use crds::sandbox::{Phase, PodStatus};
use jiff::Timestamp;

use super::status::condition_since;
use super::{DeletionGrace, FailureKind, Planner, deadline_after};
use crate::facts::{ContainerState, PodFacts, PodPhase, ProbeResult};
use shared::kubernetes::api_messages;

/// Shortest and longest time after the begin of a start, or of a container run, in which routine
/// details are not written. Each is a write.
const STATUS_DETAIL_DELAY: [Duration; 2] = [Duration::from_secs(3), Duration::from_mins(2)];
/// Addition to it for each start in progress: thousands at once would flood the API server.
const DETAIL_DELAY_PER_START: Duration = Duration::from_millis(500);

impl Planner<'_> {
    /// Reports what the start waits for, and requeues at its timeout.
    pub(super) fn report_starting(&mut self, pod: &PodFacts, first: bool) {
        let was_running = self.plan.status.phase == Phase::Running;
        let (reason, mut message, routine) = self.waiting_reason(pod);
        if reason == Reason::CreatingPod {
            message = self.paced_message(message);
        }
        let run = pod
            .container
            .running_since()
            .unwrap_or_default()
            .min(self.now);
        let details = deadline_after(self.starting_since().max(run), Some(self.detail_delay()));
        let early = details.is_some_and(|at| at > self.now);
        if routine && !was_running && early {
            // The first status says only that the start has begun.
            self.requeue_no_later_than(details);
            self.plan.write_status = !self.input.has_no_status();
            if first {
                self.plan.status.pod_status = Some(PodStatus::Pending);
            }
        } else {
            self.set_phase(Phase::Starting, reason, message);
            let runs = matches!(pod.container.state, ContainerState::Running { .. });
            let running = pod.phase == PodPhase::Running && runs;
            let status = &mut self.plan.status;
            status.pod_status = Some(if running {
                PodStatus::Running
            } else {
                PodStatus::Pending
            });
            status.pod_ip.clone_from(&pod.ip);
            status.node_name.clone_from(&pod.node);
        }
        if self.has_been_ready() {
            self.replace_stuck_pod(pod);
        } else {
            self.enforce_start_timeout();
        }
    }

    /// Progress of a pull changes every second. A written message stands for the detail delay, so
    /// that all starts together write about two statuses a second.
    fn paced_message(&mut self, message: Option<String>) -> Option<String> {
        let status = &self.plan.status;
        let written = status.message.clone();
        let shown = status.reason == Some(Reason::CreatingPod) && written.is_some();
        let since = self.facts.message_written_at.filter(|_| shown);
        let until = since.and_then(|since| deadline_after(since, Some(self.detail_delay())));
        if until.is_none() || message == written || self.is_due(until) {
            return message;
        }
        written
    }

    fn detail_delay(&self) -> Duration {
        let starts = u32::try_from(self.facts.starts_in_progress).unwrap_or(u32::MAX);
        let [shortest, longest] = STATUS_DETAIL_DELAY;
        DETAIL_DELAY_PER_START
            .saturating_mul(starts)
            .clamp(shortest, longest)
    }

    /// Reason, message, and whether they are routine in every start.
    fn waiting_reason(&self, pod: &PodFacts) -> (Reason, Option<String>, bool) {
        let status = &self.plan.status;
        // The environment Secret is created right after the Pod.
        let problem = pod.start_problem.as_ref();
        if let Some(problem) = problem.filter(|_| !pod.is_missing_environment()) {
            return (problem.reason(), Some(problem.message.clone()), false);
        }
        if pod.node_silent {
            let node = pod.node.as_deref().unwrap_or_default();
            let message = format!("node {node} is not reporting and the sandbox does not respond");
            return (Reason::NodeNotReady, Some(message), false);
        }
        if self.is_missing_claim(pod) {
            let message = "the workspace PVC was deleted; a new, empty one is created";
            return (Reason::VolumeLost, Some(message.into()), false);
        }
        if let Some(why) = &pod.unschedulable {
            return (
                Reason::Unschedulable,
                Some(self.unschedulable_message(why)),
                true,
            );
        }
        let container = &pod.container;
        if container.has_ended() || container.restarts > 0 {
            let end = container.describe_termination();
            let message = format!("the command terminated ({end}) and is being restarted");
            return (Reason::Restarting, Some(message), false);
        }
        if status.reason == Some(Reason::PodReplaced) {
            return (Reason::PodReplaced, status.message.clone(), true);
        }
        if !matches!(container.state, ContainerState::Running { .. }) {
            return (Reason::CreatingPod, pod.preparation.clone(), true);
        }
        match &self.facts.readiness {
            Some(ProbeResult::NotReady(detail)) => {
                (Reason::WaitingForCommand, detail.clone(), true)
            }
            Some(ProbeResult::Ready | ProbeResult::OtherOwner | ProbeResult::Silent) => {
                (Reason::WaitingForCommand, None, true)
            }
            // No probe result in this process yet: the written status stands.
            None if status.reason == Some(Reason::WaitingForCommand) => {
                (Reason::WaitingForCommand, status.message.clone(), true)
            }
            None => (Reason::Initializing, None, true),
        }
    }

    /// Adds PVC and storage class, which the message of the scheduler lacks.
    fn unschedulable_message(&self, why: &str) -> String {
        let workspace = self.input.entry.spec.workspace.as_ref();
        let Some(workspace) = workspace.filter(|_| api_messages::is_about_claims(why)) else {
            return why.to_owned();
        };
        let claim = self.input.entry.workspace_claim();
        match &workspace.storage_class_name {
            Some(class) => format!("{why} (PVC {claim}, storage class {class})"),
            None => format!("{why} (PVC {claim}, default storage class of the cluster)"),
        }
    }

    /// Begin of the present attempt to become ready.
    fn starting_since(&self) -> Timestamp {
        let status = &self.plan.status;
        if condition_since(status, ConditionType::Ready, true).is_some() {
            return self.now;
        }
        let started = self.started_at();
        let unready = condition_since(status, ConditionType::Ready, false);
        unready.map_or(started, |unready| unready.max(started))
    }

    /// Replaces a Pod whose command runs and has not become ready within `startTimeout`. A silent
    /// node is left to Kubernetes: its containers may still run.
    fn replace_stuck_pod(&mut self, pod: &PodFacts) {
        let Some(running) = pod.container.running_since().filter(|_| !pod.node_silent) else {
            return;
        };
        let since = self.starting_since().max(running.min(self.now));
        if self.is_due(deadline_after(since, self.input.deadlines.start_timeout)) {
            let message = "the command was not ready within startTimeout";
            self.mark_pod_lost("StartTimeout", message);
            self.delete_pod(pod, DeletionGrace::PodDefault);
        }
    }

    /// Fails a start that exceeds `startTimeout`, unless the sandbox has been ready before.
    pub(super) fn enforce_start_timeout(&mut self) {
        let limit = self.input.deadlines.start_timeout;
        if self.has_been_ready() || !self.is_due(deadline_after(self.starting_since(), limit)) {
            return;
        }
        let why = self.plan.status.message.clone().unwrap_or_default();
        let message = format!("the sandbox was not ready in time. {why}");
        self.fail(Reason::StartTimeout, message.trim_end(), FailureKind::Other);
        self.plan.actions.clear();
    }
}
