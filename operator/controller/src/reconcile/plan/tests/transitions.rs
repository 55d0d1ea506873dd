//! One fixture per transition: a sandbox in some phase, and the fact that leads out of it.

use super::*;
use crate::facts::{IdleReport, QuotaDecision};

/// A row of the table in `docs/lifecycle.md`.
pub(super) struct Transition {
    pub(super) description: &'static str,
    pub(super) fixture: PlanFixture,
    /// Rejection of the planned actions.
    pub(super) rejection: Option<ActionRejection>,
}

fn transition(
    description: &'static str,
    mut fixture: PlanFixture,
    change: impl FnOnce(&mut PlanFixture),
) -> Transition {
    change(&mut fixture);
    Transition {
        description,
        fixture,
        rejection: None,
    }
}

/// A new object whose Pod is rejected.
fn refused(
    description: &'static str,
    fixture: PlanFixture,
    reason: Reason,
    fatal: bool,
) -> Transition {
    let rejection = ActionRejection {
        reason,
        message: "why".into(),
        is_terminal: fatal,
    };
    Transition {
        description,
        fixture,
        rejection: Some(rejection),
    }
}

pub(super) fn transitions() -> Vec<Transition> {
    let parts = [
        new_objects(),
        rejections(),
        starts(),
        unsupervised(),
        start_problems(),
        running(),
        lost_pods(),
        pauses(),
        final_phases(),
    ];
    parts.into_iter().flatten().collect()
}

/// A sandbox whose Pod has just been created.
fn started() -> PlanFixture {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        ip: None,
        container: Container::default(),
        ..pod()
    });
    fixture.advance(4);
    fixture
}

/// A sandbox that was queued for quota.
fn waiting() -> PlanFixture {
    let mut fixture = PlanFixture::new();
    fixture.facts.quota = QuotaDecision::Queued("waiting for quota".into());
    fixture.plan_and_apply();
    fixture.facts.quota = QuotaDecision::Admitted;
    fixture
}

fn paused() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.facts = Facts::default();
    fixture.plan_and_apply();
    fixture
}

fn idle() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.deadlines.idle_timeout = Some(10 * MINUTE);
    fixture.advance(600);
    fixture.facts.idle = Some(IdleReport {
        checked_at: fixture.now,
        idle_since: Some(fixture.now - SignedDuration::from_secs(600)),
    });
    fixture
}

/// An idle pause whose Pod still runs.
fn pausing_idle() -> PlanFixture {
    let mut fixture = idle();
    fixture.plan_and_apply();
    fixture
}

/// The second idle check reported so many seconds without activity.
fn confirmed(fixture: &mut PlanFixture, seconds: i64) {
    fixture.advance(2);
    fixture.facts.idle = Some(IdleReport {
        checked_at: fixture.now,
        idle_since: Some(fixture.now - SignedDuration::from_secs(seconds)),
    });
}

fn paused_idle() -> PlanFixture {
    let mut fixture = pausing_idle();
    fixture.facts = Facts::default();
    fixture.plan_and_apply();
    fixture
}

fn stopped() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Stopped);
    fixture.facts = Facts::default();
    fixture.plan_and_apply();
    fixture
}

fn failed() -> PlanFixture {
    let mut fixture = started();
    fixture.pod().start_problem = Some(start_problem(StartProblemKind::ImageName, fixture.now));
    fixture.plan_and_apply();
    fixture.facts.pod = None;
    fixture
}

fn new_objects() -> Vec<Transition> {
    vec![
        transition("a new object", PlanFixture::new(), |_| {}),
        transition("its pool does not exist", PlanFixture::new(), |w| {
            w.spec().pool = Some("default".into());
            w.facts.pool_missing = true;
        }),
        transition(
            "the quota of the API key is exhausted",
            PlanFixture::new(),
            |w| {
                w.facts.quota = QuotaDecision::Queued("waiting for quota".into());
            },
        ),
        transition("… and quota becomes available", waiting(), |_| {}),
        transition("… and `startTimeout` has passed", waiting(), |w| {
            w.facts.quota = QuotaDecision::Queued("waiting for quota".into());
            w.advance(15 * 60);
        }),
        transition(
            "it requests more than the API key allows",
            PlanFixture::new(),
            |w| {
                w.facts.quota = QuotaDecision::Exceeded(
                    "the sandbox requests more than the API key allows".into(),
                );
            },
        ),
        transition("`state: Paused` at creation", PlanFixture::new(), |w| {
            w.set_desired_state(DesiredState::Paused);
        }),
    ]
}

fn rejections() -> Vec<Transition> {
    let new = PlanFixture::new;
    vec![
        refused(
            "the spec, completed from its pool, is invalid",
            new(),
            Reason::InvalidSpec,
            true,
        ),
        refused(
            "the Pod is rejected by policy or `ResourceQuota`: retried, at least every five minutes",
            new(),
            Reason::Refused,
            false,
        ),
        refused(
            "a Pod, PVC or Secret of that name has another owner: retried likewise",
            new(),
            Reason::NameTaken,
            false,
        ),
        refused(
            "an earlier PVC or Pod of this name is still terminating",
            new(),
            Reason::CreatingPod,
            false,
        ),
        refused(
            "the replacement Pod is rejected",
            lost(),
            Reason::Refused,
            false,
        ),
    ]
}

/// A running sandbox whose Pod is gone.
fn lost() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.facts = Facts::default();
    fixture
}

/// A sandbox without a command.
fn plain(port: Option<u16>) -> PlanFixture {
    let mut fixture = started();
    fixture.spec().command = None;
    fixture.probe.port = port;
    fixture.facts.pod = Some(PodFacts {
        supervised: false,
        ..pod()
    });
    fixture
}

fn unsupervised() -> Vec<Transition> {
    vec![
        transition(
            "no command, no port: the Pod is not `Ready`",
            plain(None),
            |_| {},
        ),
        transition(
            "… the Pod is `Ready` and has run for 2 s",
            plain(None),
            |w| {
                w.pod().ready = true;
            },
        ),
        transition(
            "no command, a port: the Pod is `Ready`, the port does not accept",
            plain(Some(8000)),
            |w| {
                w.pod().ready = true;
                w.facts.readiness = Some(ProbeResult::NotReady(None));
            },
        ),
        transition("… the port accepts", plain(Some(8000)), |w| {
            w.pod().ready = true;
            w.facts.readiness = Some(ProbeResult::Ready);
        }),
        transition(
            "no command: `state: Paused`, the Pod is gone",
            plain(None),
            |w| {
                w.set_desired_state(DesiredState::Paused);
                w.facts = Facts::default();
            },
        ),
    ]
}

fn starts() -> Vec<Transition> {
    vec![
        transition(
            "the Pod is scheduled, or its image pulled",
            started(),
            |_| {},
        ),
        transition("the Pod is unschedulable", started(), |w| {
            w.pod().unschedulable = Some("0/3 nodes are available".into());
        }),
        transition("the Pod has an IP", started(), |w| {
            w.facts.pod = Some(pod());
        }),
        transition("the command runs and is not ready", started(), |w| {
            w.facts.pod = Some(pod());
            w.facts.readiness = Some(ProbeResult::NotReady(None));
        }),
        transition("the readiness probe succeeds", started(), |w| {
            w.facts.pod = Some(pod());
            w.facts.readiness = Some(ProbeResult::Ready);
        }),
        transition("`startTimeout` has passed", started(), |w| {
            w.advance(15 * 60);
        }),
        transition("`state: Paused`", started(), |w| {
            w.set_desired_state(DesiredState::Paused);
        }),
        transition("`state: Stopped`", started(), |w| {
            w.set_desired_state(DesiredState::Stopped);
        }),
    ]
}

fn start_problems() -> Vec<Transition> {
    let with_problem = |kind, seconds| {
        move |w: &mut PlanFixture| {
            w.pod().start_problem = Some(start_problem(kind, w.now));
            w.plan_and_apply();
            w.advance(seconds);
        }
    };
    let crashed = |ends: u32| {
        move |w: &mut PlanFixture| {
            w.pod().container = Container {
                state: ContainerState::BackingOff,
                restarts: ends - 1,
                last_termination: Some("exit code 1".into()),
                termination_message: None,
            };
        }
    };
    vec![
        transition(
            "the image cannot be pulled",
            started(),
            with_problem(StartProblemKind::ImagePull, 0),
        ),
        transition(
            "… for two minutes",
            started(),
            with_problem(StartProblemKind::ImagePull, 120),
        ),
        transition("invalid image name", started(), |w| {
            w.pod().start_problem = Some(start_problem(StartProblemKind::ImageName, w.now));
        }),
        transition(
            "the container configuration is invalid",
            started(),
            with_problem(StartProblemKind::ContainerConfig, 0),
        ),
        transition(
            "… for two minutes",
            started(),
            with_problem(StartProblemKind::ContainerConfig, 120),
        ),
        transition(
            "a Secret or ConfigMap is missing, until `startTimeout`",
            started(),
            with_problem(StartProblemKind::MissingReference, 120),
        ),
        transition(
            "the command terminated once or twice",
            started(),
            crashed(1),
        ),
        transition("the command terminated three times", started(), crashed(3)),
        transition("the PVC was deleted", started(), |w| {
            let why = "persistentvolumeclaim \"a-workspace\" not found";
            w.pod().unschedulable = Some(why.into());
        }),
    ]
}

fn running() -> Vec<Transition> {
    let running = PlanFixture::running;
    vec![
        transition("no change", running(), |_| {}),
        transition("the controller was restarted", running(), |w| {
            w.facts.readiness = None;
        }),
        transition(
            "the container restarted, for example after `OOMKilled`",
            running(),
            |w| {
                w.facts.readiness = None;
                w.advance(600);
                let now = w.now;
                w.pod().container = Container {
                    state: ContainerState::Running {
                        started_at: Some(now),
                    },
                    restarts: 1,
                    last_termination: Some("OOMKilled".into()),
                    termination_message: None,
                };
            },
        ),
        transition("the readiness probe fails", running(), |w| {
            w.facts.readiness = Some(ProbeResult::NotReady(None));
        }),
        transition("… for `startTimeout`", running(), |w| {
            w.facts.readiness = Some(ProbeResult::NotReady(None));
            w.plan_and_apply();
            w.advance(15 * 60);
        }),
        transition("`idleTimeout` has passed since it was ready", idle(), |w| {
            w.facts.idle = None;
        }),
        transition("… and there is no activity", idle(), |_| {}),
        transition("… and the idle time is unknown", idle(), |w| {
            w.facts.idle = Some(IdleReport {
                checked_at: w.now,
                idle_since: None,
            });
        }),
        transition("`maxRunTime` has passed", running(), |w| {
            w.deadlines.max_run_time = Some(60 * MINUTE);
            w.advance(3600);
        }),
        transition("`state: Paused`", running(), |w| {
            w.set_desired_state(DesiredState::Paused);
        }),
        transition("`state: Stopped`", running(), |w| {
            w.set_desired_state(DesiredState::Stopped);
        }),
    ]
}

fn lost_pods() -> Vec<Transition> {
    let running = PlanFixture::running;
    vec![
        transition("the Pod was evicted", running(), |w| {
            w.pod().phase = PodPhase::Failed;
            w.pod().reason = Some("Evicted".into());
        }),
        transition("the Pod terminated", running(), |w| {
            w.pod().phase = PodPhase::Succeeded;
        }),
        transition("the node of the Pod is lost", running(), |w| {
            w.pod().phase = PodPhase::Unknown;
        }),
        transition(
            "the node is silent, and the sandbox responds",
            running(),
            |w| w.pod().node_silent = true,
        ),
        transition("… and the sandbox does not respond", running(), |w| {
            w.pod().node_silent = true;
            w.facts.readiness = Some(ProbeResult::NotReady(None));
        }),
        transition(
            "the Pod is being deleted, by hand or by preemption",
            running(),
            |w| {
                let ends = w.now + SignedDuration::from_secs(10);
                w.pod().grace_ends_at = Some(ends);
            },
        ),
        transition(
            "… and still exists 30 s after its grace period",
            running(),
            |w| {
                let ends = w.now;
                w.pod().grace_ends_at = Some(ends);
                w.plan_and_apply();
                w.advance(30);
            },
        ),
        transition("the Pod is gone", running(), |w| w.facts = Facts::default()),
        transition(
            "the Pod is gone before the first status",
            PlanFixture::new(),
            |w| w.facts.had_lost_pod = true,
        ),
        transition(
            "… repeatedly: the replacement waits for the backoff",
            running(),
            |w| {
                let turn = w.now + SignedDuration::from_secs(8);
                w.facts = Facts {
                    replace_at: Some(turn),
                    ..Facts::default()
                };
            },
        ),
    ]
}

fn pauses() -> Vec<Transition> {
    vec![
        transition(
            "idle: every gateway has seen the pause",
            pausing_idle(),
            |w| w.advance(2),
        ),
        transition("… and there is still no activity", pausing_idle(), |w| {
            confirmed(w, 700);
        }),
        transition(
            "… there was activity: the pause is cancelled",
            pausing_idle(),
            |w| {
                confirmed(w, 1);
            },
        ),
        transition(
            "a request arrived: the pause is cancelled",
            pausing_idle(),
            |w| {
                w.entry.wake_at = Some(w.now);
            },
        ),
        transition("the Pod is gone", pausing_idle(), |w| {
            w.facts = Facts::default();
        }),
        transition("idle: a request or a resume arrived", paused_idle(), |w| {
            w.entry.wake_at = Some(w.now);
        }),
        transition("idle: `state: Paused`", paused_idle(), |w| {
            w.set_desired_state(DesiredState::Paused);
        }),
        transition("`state: Running`", paused(), |w| {
            w.set_desired_state(DesiredState::Running);
        }),
        transition("… while the old Pod is terminating", paused(), |w| {
            w.set_desired_state(DesiredState::Running);
            let ends = w.now + SignedDuration::from_secs(10);
            w.facts.pod = Some(PodFacts {
                grace_ends_at: Some(ends),
                ..pod()
            });
        }),
        transition("`deletePausedAfter` has passed", paused(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.advance(3600);
        }),
        transition("`state: Stopped`", paused(), |w| {
            w.set_desired_state(DesiredState::Stopped);
        }),
    ]
}

fn final_phases() -> Vec<Transition> {
    vec![
        transition("no change", failed(), |_| {}),
        transition("the spec was changed", failed(), |w| {
            w.entry.generation += 1;
        }),
        transition(
            "the wake annotation is newer than the start",
            failed(),
            |w| {
                w.entry.wake_at = Some(w.now);
            },
        ),
        transition("the template of its pool was changed", failed(), |w| {
            w.entry.status.pool_revision = Some("old".into());
            w.facts.pool_revision = Some("new".into());
        }),
        transition("`deletePausedAfter` has passed", failed(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.plan_and_apply();
            w.advance(3600);
        }),
        transition("`deleteStoppedAfter` has passed", stopped(), |w| {
            w.advance(24 * 3600);
        }),
        transition("`state: Running`", stopped(), |w| {
            w.set_desired_state(DesiredState::Running);
        }),
        transition("expired, `state: Running`", paused(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.advance(3600);
            w.entry.status = w.plan().status;
            w.plan_and_apply();
            w.set_desired_state(DesiredState::Running);
        }),
        transition(
            "the object is being deleted; Kubernetes deletes the owned objects",
            PlanFixture::running(),
            |w| w.entry.deleting = true,
        ),
    ]
}
