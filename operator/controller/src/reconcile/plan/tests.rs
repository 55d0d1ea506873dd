//! Unit tests of the planner: every phase, and every fact that leads out of it.

mod environment_secret;
mod idle;
mod lifecycle_doc;
mod lost_pods;
mod pause_stop;
mod persistence;
mod properties;
mod running;
mod start;
mod transitions;
mod warm_resume;

use std::sync::Arc;
use std::time::Duration;

use crds::conditions::Reason;
use crds::contract::control::Probe;
use crds::int_or_string::IntOrString;
use crds::sandbox::{SandboxSpec, SandboxStatus, Workspace};
use jiff::SignedDuration;

use super::*;
use crate::config::Deadlines;
use crate::facts::{
    Container, ContainerState, IdleReport, PodFacts, PodPhase, ProbeResult, QuotaDecision,
    ResizeProblem, StartProblem, StartProblemKind,
};
use crate::reconcile::build::persistence::PersistenceObstacle;
use crate::tests::{entry, plain};
use shared::index::Entry;

/// One sandbox with its facts and its status, planned reconcile by reconcile.
#[derive(Debug, Clone)]
pub(super) struct PlanFixture {
    pub(super) entry: Entry,
    pub(super) facts: Facts,
    pub(super) deadlines: Deadlines,
    pub(super) probe: Probe,
    pub(super) obstacle: Option<PersistenceObstacle>,
    pub(super) now: Timestamp,
}

impl PlanFixture {
    /// A new sandbox with a command and a workspace.
    pub(super) fn new() -> Self {
        let workspace = Workspace {
            size: IntOrString::String("1Gi".into()),
            ..Workspace::default()
        };
        let spec = SandboxSpec {
            workspace: Some(workspace),
            ..plain()
        };
        Self {
            entry: entry(spec),
            facts: Facts::default(),
            deadlines: Deadlines::default(),
            probe: Probe {
                port: None,
                path: None,
            },
            obstacle: None,
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    /// A running sandbox.
    pub(super) fn running() -> Self {
        let mut fixture = Self::new();
        fixture.plan_and_apply();
        fixture.facts.pod = Some(pod());
        fixture.facts.readiness = Some(ProbeResult::Ready);
        fixture.advance(1);
        fixture.reaches(Phase::Running, Reason::Ready);
        fixture
    }

    /// A new sandbox with the first status of its start.
    pub(super) fn starting() -> Self {
        let mut fixture = Self::new();
        let plan = fixture.plan_and_apply();
        fixture.entry.status = stored(&plan.status);
        fixture
    }

    /// A sandbox that was paused while it ran.
    pub(super) fn paused() -> Self {
        let mut fixture = Self::running();
        fixture.set_desired_state(DesiredState::Paused);
        fixture.lose_pod();
        fixture.reaches(Phase::Paused, Reason::Requested);
        fixture
    }

    pub(super) fn spec(&mut self) -> &mut SandboxSpec {
        Arc::make_mut(&mut self.entry.spec)
    }

    /// Changes `spec.state`.
    pub(super) fn set_desired_state(&mut self, state: DesiredState) {
        self.spec().state = state;
        self.entry.generation += 1;
    }

    pub(super) fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The time in so many seconds, as in `requeue_at`.
    pub(super) fn at(&self, seconds: i64) -> Option<Timestamp> {
        self.now
            .checked_add(SignedDuration::from_secs(seconds))
            .ok()
    }

    pub(super) fn pod(&mut self) -> &mut PodFacts {
        self.facts.pod.as_mut().unwrap()
    }

    /// The Pod is gone, and with it what is known about it.
    pub(super) fn lose_pod(&mut self) {
        self.facts = Facts::default();
    }

    /// The container of the Pod runs since now.
    pub(super) fn run_container(&mut self) {
        let started_at = Some(self.now);
        self.pod().container.state = ContainerState::Running { started_at };
    }

    /// An idle report of so many seconds without activity; `None` if that is unknown.
    pub(super) fn report_idle_for(&mut self, seconds: impl Into<Option<i64>>) {
        let since = |seconds| self.now - SignedDuration::from_secs(seconds);
        self.facts.idle = Some(IdleReport {
            checked_at: self.now,
            idle_since: seconds.into().map(since),
        });
    }

    fn input(&self) -> PlanInput<'_> {
        PlanInput {
            entry: &self.entry,
            deadlines: self.deadlines,
            url: "https://abcdefghijklmnop.example.com",
            probe: self.probe.clone(),
            level: self.entry.spec.persistence.unwrap_or_default(),
            persistence_obstacle: self.obstacle,
            plugins: &[],
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.input(), &self.facts, self.now)
    }

    /// The status after a rejected action.
    pub(super) fn status_after_rejection(&self, rejection: &ActionRejection) -> SandboxStatus {
        stored(&status_after_rejection(
            &self.input(),
            &self.facts,
            rejection,
            self.now,
        ))
    }

    /// Plans and stores the status, as the API server would return it. A second plan with the same
    /// facts must not change it, or the controller would write endlessly.
    pub(super) fn plan_and_apply(&mut self) -> Plan {
        let (plan, before) = (self.plan(), self.status().phase);
        if plan.write_status {
            self.entry.status = stored(&plan.status);
        }
        let created = creates_pod(&plan).is_some();
        // These phases are written before the next reconcile acts.
        let announced = before != plan.status.phase
            && matches!(plan.status.phase, Phase::Pausing | Phase::Stopped);
        let again = self.plan();
        if again.write_status && !created && !announced {
            assert_eq!(again.status, self.entry.status, "not stable");
        }
        plan
    }

    /// Plans and stores the status after so many seconds.
    pub(super) fn after(&mut self, seconds: i64) -> Plan {
        self.advance(seconds);
        self.plan_and_apply()
    }

    /// Plans and stores a status with this phase and reason.
    #[track_caller]
    pub(super) fn reaches(&mut self, phase: Phase, reason: Reason) -> Plan {
        let plan = self.plan_and_apply();
        let reached = (plan.status.phase, plan.status.reason);
        assert_eq!(reached, (phase, Some(reason)), "{:?}", plan.status.message);
        plan
    }

    pub(super) fn status(&self) -> &SandboxStatus {
        &self.entry.status
    }
}

/// A status after a round trip through JSON, which truncates times to seconds.
fn stored(status: &SandboxStatus) -> SandboxStatus {
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// A supervised Pod whose container has not been started.
pub(super) fn waiting_pod() -> PodFacts {
    PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    }
}

/// A supervised Pod whose container has just been started.
pub(super) fn pod() -> PodFacts {
    PodFacts {
        name: "a".into(),
        uid: "pod-1".into(),
        created_at: Some(Timestamp::from_second(1_000_000).unwrap()),
        phase: PodPhase::Running,
        ip: Some("10.0.0.1".into()),
        node: Some("node-1".into()),
        supervised: true,
        container: Container {
            state: ContainerState::Running {
                started_at: Some(Timestamp::from_second(1_000_000).unwrap()),
            },
            ..Container::default()
        },
        ..PodFacts::default()
    }
}

pub(super) fn start_problem(kind: StartProblemKind, since: Timestamp) -> StartProblem {
    StartProblem {
        kind,
        message: "ErrImagePull: no such image".into(),
        since: Some(since),
    }
}

/// A container that terminated, in this state after so many restarts.
pub(super) fn terminated(state: ContainerState, restarts: u32, reason: &str) -> Container {
    Container {
        state,
        restarts,
        last_termination: Some(reason.into()),
        ..Container::default()
    }
}

pub(super) fn queued() -> QuotaDecision {
    QuotaDecision::Queued("waiting for quota".into())
}

pub(super) fn rejection(reason: Reason, is_terminal: bool) -> ActionRejection {
    ActionRejection {
        reason,
        message: "why".into(),
        is_terminal,
    }
}

pub(super) fn creates_pod(plan: &Plan) -> Option<u32> {
    plan.actions.iter().find_map(|action| match action {
        Action::CreatePod { restarts } | Action::ClaimPod { restarts, .. } => Some(*restarts),
        _ => None,
    })
}

pub(super) fn deletes_pod(plan: &Plan) -> Option<DeletionGrace> {
    plan.actions.iter().find_map(|action| match action {
        Action::DeletePod { grace, .. } => Some(*grace),
        _ => None,
    })
}

pub(super) fn condition(status: &SandboxStatus, kind: &str) -> Option<String> {
    let mut all = status.conditions.iter();
    all.find(|c| c.type_ == kind).map(|c| c.status.clone())
}

pub(super) const MINUTE: Duration = Duration::from_mins(1);
