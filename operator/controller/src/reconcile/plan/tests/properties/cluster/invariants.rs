//! Invariants of every plan.

use crds::sandbox::PauseReason;

use super::*;

impl ClusterModel {
    /// Checks that the plan is empty when nothing has happened.
    pub(super) fn check_no_change(&mut self) {
        if !self.controller || self.deleted || self.lose_status_write || self.fail_action {
            return;
        }
        let plan = self.plan();
        assert_eq!(plan.actions, [], "without a reason: {self:#?}");
        let (written, known) = (stored(&plan.status), self.fixture.status());
        assert!(!plan.write_status || written == *known, "{written:#?}");
        assert_eq!(plan.requeue_at, self.next, "deadline without a reason");
    }

    pub(super) fn check(&self, plan: &Plan) {
        let pod = self.fixture.facts.pod.as_ref();
        for action in &plan.actions {
            match action {
                Action::CreatePod { .. } => {
                    assert_eq!(pod, None, "a second Pod");
                    let desired = self.desired_state();
                    assert_eq!(desired, DesiredState::Running, "a Pod is not desired");
                }
                Action::CreateWaitingPod { .. } => {
                    assert_eq!(pod, None, "a second Pod");
                    assert_eq!(self.phase(), Phase::Paused, "the pause is not written");
                    let desired = self.desired_state();
                    assert_eq!(desired, DesiredState::Paused, "a Pod is to run");
                }
                Action::DeletePod { uid, .. } => assert_eq!(Some(uid), pod.map(|p| &p.uid)),
                Action::DeleteSandbox => assert_eq!(self.desired_state(), DesiredState::Stopped),
                _ => {}
            }
        }
        let ready = condition(&plan.status, "Ready");
        let runs = plan.status.phase == Phase::Running;
        assert_eq!(ready.as_deref() == Some("True"), runs, "{:?}", plan.status);
        match plan.status.phase {
            Phase::Running => self.check_running(plan),
            Phase::Paused => self.check_paused(plan),
            Phase::Failed => assert_eq!(plan.status.pod_name, None, "failed with a Pod"),
            Phase::Pausing => self.check_pausing(plan),
            _ => {}
        }
        let now = self.fixture.now;
        assert!(
            plan.requeue_at.is_none_or(|at| at > now),
            "{plan:#?} at {now}"
        );
    }

    /// A paused sandbox has at most a Pod that waits, which never had an init message.
    fn check_paused(&self, plan: &Plan) {
        let Some(pod) = &self.fixture.facts.pod else {
            return;
        };
        assert!(self.has_waiting_pod(), "paused with a Pod");
        assert!(!plan.probe_readiness, "the waiting Pod is probed");
        assert_ne!(
            self.initialized.as_ref(),
            Some(&pod.uid),
            "paused and initialized"
        );
    }

    /// An idle pause rests on a fresh report of enough idle time.
    fn check_pausing(&self, plan: &Plan) {
        let begins = self.phase() == Phase::Running;
        if !begins || plan.status.pause_reason != Some(PauseReason::Idle) {
            return;
        }
        let (facts, now) = (&self.fixture.facts, self.fixture.now);
        let quiet = facts.idle.expect("paused without an idle report");
        let age = now.duration_since(quiet.checked_at);
        assert!(age <= SignedDuration::from_secs(5), "report is {age} old");
        let limit = self.fixture.deadlines.idle_timeout.expect("a timeout");
        let limit = SignedDuration::try_from(limit).unwrap();
        let idle = now.duration_since(quiet.idle_since.expect("an answer"));
        assert!(idle >= limit, "idle for {idle}");
        assert_eq!(plan.actions, [], "the gateways do not know yet");
    }

    /// Phase `Running` requires a successful probe in the present container run.
    fn check_running(&self, plan: &Plan) {
        let facts = &self.fixture.facts;
        let pod = facts.pod.as_ref().expect("running without a Pod");
        // A pause that is cancelled is in the status until the next one is written.
        let is_cancelled = self.phase() == Phase::Pausing;
        let desired = if is_cancelled {
            self.fixture.entry.spec.state
        } else {
            self.desired_state()
        };
        assert_eq!(desired, DesiredState::Running, "running is not desired");
        let lives = pod.grace_ends_at.is_none() && pod.phase == PodPhase::Running;
        let runs = matches!(pod.container.state, ContainerState::Running { .. });
        assert!(lives && runs, "{pod:#?}");
        assert!(pod.ip.is_some() && plan.status.pod_ip == pod.ip);
        if self.kind == ReadinessSource::Kubelet {
            assert!(pod.ready, "running although the kubelet reports not ready");
        } else {
            let run = Some(pod.container_run());
            assert_eq!(self.proven, run, "running without a successful probe");
            let not_ready = matches!(facts.readiness, Some(ProbeResult::NotReady(_)));
            assert!(!not_ready, "running although the probe failed");
        }
    }
}
