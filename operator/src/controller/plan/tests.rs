//! Every state, and every fact that leads out of it.

mod children;
mod lost;
mod properties;
mod quiet;
mod rest;
mod running;
mod scenes;
mod start;
mod table;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use crds::amount::IntOrString;
use crds::sandbox::{SandboxSpec, SandboxStatus, Workspace};
use jiff::SignedDuration;

use super::*;
use crate::controller::facts::{
    Answer, Container, ContainerState, Edition, PodFacts, PodPhase, Trouble, TroubleKind,
};
use crate::index::Key;

/// A sandbox, what is known of it, and what was decided for it, pass by pass.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) entry: Entry,
    pub(super) facts: Facts,
    pub(super) deadlines: Deadlines,
    pub(super) port: Option<u16>,
    pub(super) now: Timestamp,
}

impl World {
    /// A new sandbox with a command and a workspace.
    pub(super) fn new() -> Self {
        let spec = SandboxSpec {
            image: Some("image".into()),
            command: Some(vec!["sleep".into(), "infinity".into()]),
            workspace: Some(Workspace {
                size: IntOrString::String("1Gi".into()),
                ..Workspace::default()
            }),
            ..SandboxSpec::default()
        };
        Self {
            entry: Entry {
                key: Key {
                    namespace: "ns".into(),
                    name: "a".into(),
                },
                uid: "uid".into(),
                resource_version: "1".into(),
                generation: 1,
                created_at: None,
                deleting: false,
                wake_at: None,
                runtime_id: "abcdefghijklmnop".into(),
                spec: Arc::new(spec),
                status: SandboxStatus::default(),
            },
            facts: Facts::default(),
            deadlines: Deadlines::default(),
            port: None,
            now: Timestamp::from_second(1_000_000).unwrap(),
        }
    }

    /// As [`World::new`], but running.
    pub(super) fn running() -> Self {
        let mut world = Self::new();
        world.step();
        world.facts.pod = Some(pod());
        world.facts.answer = Some(Answer::Ready);
        world.pass(1);
        assert_eq!(world.step().status.phase, Phase::Running);
        world
    }

    /// As [`World::new`], with a first status of a start.
    pub(super) fn starting() -> Self {
        let mut world = Self::new();
        let plan = world.step();
        world.entry.status = stored(&plan.status);
        world
    }

    pub(super) fn spec(&mut self) -> &mut SandboxSpec {
        Arc::make_mut(&mut self.entry.spec)
    }

    /// The user changes the wanted state.
    pub(super) fn want(&mut self, state: DesiredState) {
        self.spec().state = state;
        self.entry.generation += 1;
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(super) fn pod(&mut self) -> &mut PodFacts {
        self.facts.pod.as_mut().unwrap()
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            entry: &self.entry,
            deadlines: self.deadlines,
            url: "https://abcdefghijklmnop.example.com",
            port: self.port,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.subject(), &self.facts, self.now)
    }

    /// The status after a plan that could not be carried out.
    pub(super) fn refuse(&self, refusal: &Refusal) -> SandboxStatus {
        stored(&refuse(&self.subject(), &self.facts, refusal, self.now))
    }

    /// Decides and takes the status over, as the API server would return it. A second decision
    /// on the same facts must change nothing: the controller would write for ever.
    pub(super) fn step(&mut self) -> Plan {
        let (plan, before) = (self.plan(), self.status().phase);
        if plan.reports {
            self.entry.status = stored(&plan.status);
        }
        let created = creates_pod(&plan).is_some();
        // What the status says first is done by the next decision.
        let said = before != plan.status.phase
            && matches!(plan.status.phase, Phase::Pausing | Phase::Stopped);
        let again = self.plan();
        if again.reports && !created && !said {
            assert_eq!(again.status, self.entry.status, "not stable");
        }
        plan
    }

    pub(super) fn status(&self) -> &SandboxStatus {
        &self.entry.status
    }
}

/// A status after the journey through JSON, which cuts fractions of seconds.
fn stored(status: &SandboxStatus) -> SandboxStatus {
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
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
        deletion: None,
        grace: SignedDuration::ZERO,
        ready: false,
        reason: None,
        message: None,
        disruption: None,
        unschedulable: None,
        restarts_before: 0,
        supervised: true,
        edition: Edition::default(),
        container: Container {
            state: ContainerState::Running {
                started_at: Some(Timestamp::from_second(1_000_000).unwrap()),
            },
            ..Container::default()
        },
        trouble: None,
    }
}

pub(super) fn trouble(kind: TroubleKind, since: Timestamp) -> Trouble {
    Trouble {
        kind,
        message: "ErrImagePull: no such image".into(),
        since: Some(since),
    }
}

pub(super) fn creates_pod(plan: &Plan) -> Option<u32> {
    plan.actions.iter().find_map(|action| match action {
        Action::CreatePod { restarts } => Some(*restarts),
        _ => None,
    })
}

pub(super) fn deletes_pod(plan: &Plan) -> Option<Grace> {
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
