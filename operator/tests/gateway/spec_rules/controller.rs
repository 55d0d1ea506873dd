//! Rules that the planner of the controller implements.

use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::Probe;
use crds::sandbox::{DesiredState, PauseReason, Phase, PodStatus, SandboxSpec, SandboxStatus};
use jiff::{SignedDuration, Timestamp};
use operator::controller::Deadlines;
use operator::controller::facts::{
    Container, ContainerState, Facts, IdleReport, PodFacts, PodPhase, ProbeResult,
};
use operator::controller::reconcile::plan::{Plan, PlanInput, plan};
use operator::index::{Entry, Key};

const HOUR: Duration = Duration::from_hours(1);

/// Planner input: a sandbox, its facts and the time.
struct Sandbox {
    entry: Entry,
    facts: Facts,
    deadlines: Deadlines,
    now: Timestamp,
}

impl Sandbox {
    fn with_pod(state: ContainerState, restarts: u32) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let pod = PodFacts {
            name: "a".into(),
            uid: "pod".into(),
            created_at: Some(now),
            phase: PodPhase::Running,
            ip: Some("10.0.0.1".into()),
            supervised: true,
            container: Container {
                state,
                restarts,
                last_termination: Some("exit code 1".into()),
                termination_message: None,
            },
            ..PodFacts::default()
        };
        let mut sandbox = Self::of(DesiredState::Running, SandboxStatus::default());
        sandbox.facts.pod = Some(pod);
        sandbox
    }

    fn of(state: DesiredState, status: SandboxStatus) -> Self {
        let key = Key {
            namespace: "ns".into(),
            name: "a".into(),
        };
        let spec = SandboxSpec {
            image: Some("i".into()),
            command: Some(vec!["a".into()]),
            state,
            ..SandboxSpec::default()
        };
        Self {
            entry: Entry {
                key,
                uid: "u".into(),
                resource_version: "1".into(),
                generation: 1,
                created_at: None,
                has_sealed_env: false,
                deleting: false,
                wake_at: None,
                runtime_id: "abcdefghijklmnop".into(),
                spec: Arc::new(spec),
                status,
            },
            facts: Facts::default(),
            deadlines: Deadlines::default(),
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    fn plan(&self) -> Plan {
        let input = PlanInput {
            entry: &self.entry,
            deadlines: self.deadlines,
            url: "u",
            probe: Probe {
                port: None,
                path: None,
            },
        };
        plan(&input, &self.facts, self.now)
    }

    fn step(&mut self) -> SandboxStatus {
        self.entry.status = self.plan().status;
        self.entry.status.clone()
    }
}

#[test]
fn rule_07_one_crash_is_no_crash_loop() {
    let pod_status_after = |restarts| {
        let mut sandbox = Sandbox::with_pod(ContainerState::BackingOff, restarts);
        sandbox.step().pod_status
    };
    assert_eq!(pod_status_after(0), Some(PodStatus::Pending));
    assert_eq!(pod_status_after(1), Some(PodStatus::Pending));
    assert_eq!(pod_status_after(2), Some(PodStatus::CrashLoopBackOff));
}

#[test]
fn rule_32_expiry_counts_from_the_pause() {
    let mut sandbox = Sandbox::of(DesiredState::Paused, SandboxStatus::default());
    sandbox.deadlines.delete_paused_after = Some(HOUR);
    sandbox.now += SignedDuration::from_hours(100);
    assert_eq!(sandbox.step().phase, Phase::Paused);
    sandbox.now += SignedDuration::from_mins(59);
    assert_eq!(sandbox.step().phase, Phase::Paused);
    sandbox.now += SignedDuration::from_mins(1);
    assert_eq!(sandbox.step().phase, Phase::Stopped);
}

#[test]
fn rule_33_busy_sandbox_is_not_paused() {
    let running = ContainerState::Running { started_at: None };
    let mut sandbox = Sandbox::with_pod(running, 0);
    sandbox.facts.readiness = Some(ProbeResult::Ready);
    sandbox.deadlines.idle_timeout = Some(HOUR);
    assert_eq!(sandbox.step().phase, Phase::Running);
    sandbox.now += SignedDuration::from_hours(2);
    assert!(sandbox.plan().check_idle);
    let mut status_when_idle_since = |since| {
        sandbox.facts.idle = Some(IdleReport {
            checked_at: sandbox.now,
            idle_since: since,
        });
        let status = sandbox.plan().status;
        (status.phase, status.pause_reason)
    };
    let now = Timestamp::from_second(1_000_000).unwrap() + SignedDuration::from_hours(2);
    assert_eq!(status_when_idle_since(Some(now)), (Phase::Running, None));
    assert_eq!(status_when_idle_since(None), (Phase::Running, None));
    let long_ago = now - SignedDuration::from_hours(1);
    let idle = (Phase::Pausing, Some(PauseReason::Idle));
    assert_eq!(status_when_idle_since(Some(long_ago)), idle);
}

#[test]
fn rule_34_failed_sandbox_expires() {
    let mut sandbox = Sandbox::with_pod(ContainerState::BackingOff, 2);
    sandbox.deadlines.delete_paused_after = Some(HOUR);
    assert_eq!(sandbox.step().phase, Phase::Failed);
    sandbox.facts.pod = None;
    sandbox.now += SignedDuration::from_mins(59);
    assert_eq!(sandbox.step().phase, Phase::Failed);
    sandbox.now += SignedDuration::from_mins(1);
    assert_eq!(sandbox.step().phase, Phase::Stopped);
}
