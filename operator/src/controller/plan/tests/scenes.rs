//! One scene per transition: a sandbox in some phase, and the fact that leads out of it.

use crds::conditions::Reason;

use super::*;
use crate::controller::facts::{Quiet, Turn};

/// What the next decision is about.
pub(super) struct Scene {
    pub(super) what: &'static str,
    pub(super) world: World,
    /// Why what is decided cannot be done.
    pub(super) refusal: Option<Refusal>,
}

fn scene(what: &'static str, mut world: World, change: impl FnOnce(&mut World)) -> Scene {
    change(&mut world);
    Scene {
        what,
        world,
        refusal: None,
    }
}

/// A new object that is not made, for a reason that passes, or never passes.
fn refused(what: &'static str, world: World, reason: Reason, fatal: bool) -> Scene {
    let refusal = Refusal {
        reason,
        message: "why".into(),
        fatal,
    };
    Scene {
        what,
        world,
        refusal: Some(refusal),
    }
}

pub(super) fn scenes() -> Vec<Scene> {
    let parts = [
        births(),
        refusals(),
        starts(),
        unsupervised(),
        troubles(),
        running(),
        losses(),
        rests(),
        ends(),
    ];
    parts.into_iter().flatten().collect()
}

/// A sandbox whose Pod has just been made.
fn started() -> World {
    let mut world = World::starting();
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        ip: None,
        container: Container::default(),
        ..pod()
    });
    world.pass(4);
    world
}

/// One that has waited for its turn.
fn waiting() -> World {
    let mut world = World::new();
    world.facts.turn = Turn::Waits("waits for its turn".into());
    world.step();
    world.facts.turn = Turn::Has;
    world
}

fn paused() -> World {
    let mut world = World::running();
    world.want(DesiredState::Paused);
    world.facts = Facts::default();
    world.step();
    world
}

fn idle() -> World {
    let mut world = World::running();
    world.deadlines.idle_timeout = Some(10 * MINUTE);
    world.pass(600);
    world.facts.quiet = Some(Quiet {
        asked: world.now,
        since: Some(world.now - SignedDuration::from_secs(600)),
    });
    world
}

/// Says that it pauses, and still has its Pod.
fn pausing_by_itself() -> World {
    let mut world = idle();
    world.step();
    world
}

/// It was asked once more, and has been quiet for so many seconds.
fn confirmed(world: &mut World, seconds: i64) {
    world.pass(2);
    world.facts.quiet = Some(Quiet {
        asked: world.now,
        since: Some(world.now - SignedDuration::from_secs(seconds)),
    });
}

fn paused_by_itself() -> World {
    let mut world = pausing_by_itself();
    world.facts = Facts::default();
    world.step();
    world
}

fn stopped() -> World {
    let mut world = World::running();
    world.want(DesiredState::Stopped);
    world.facts = Facts::default();
    world.step();
    world
}

fn failed() -> World {
    let mut world = started();
    world.pod().trouble = Some(trouble(TroubleKind::ImageName, world.now));
    world.step();
    world.facts.pod = None;
    world
}

fn births() -> Vec<Scene> {
    vec![
        scene("a new object", World::new(), |_| {}),
        scene("its pool does not exist", World::new(), |w| {
            w.spec().pool = Some("default".into());
            w.facts.pool_missing = true;
        }),
        scene("its API key may run no more at a time", World::new(), |w| {
            w.facts.turn = Turn::Waits("waits for its turn".into());
        }),
        scene("… and then it is its turn", waiting(), |_| {}),
        scene("… and `startTimeout` has passed", waiting(), |w| {
            w.facts.turn = Turn::Waits("waits for its turn".into());
            w.pass(15 * 60);
        }),
        scene(
            "it needs more than its API key may have at all",
            World::new(),
            |w| {
                w.facts.turn = Turn::Never("the sandbox needs more".into());
            },
        ),
        scene("`state: Paused` from the beginning", World::new(), |w| {
            w.want(DesiredState::Paused);
        }),
    ]
}

fn refusals() -> Vec<Scene> {
    let new = World::new;
    vec![
        refused(
            "the spec, or what its pool adds, cannot be made",
            new(),
            Reason::InvalidSpec,
            true,
        ),
        refused(
            "policy or a used-up `ResourceQuota`: tried again, every five minutes at last",
            new(),
            Reason::Refused,
            false,
        ),
        refused(
            "the name of its Pod or volume claim is somebody else's: tried again likewise",
            new(),
            Reason::NameTaken,
            false,
        ),
        refused(
            "an earlier volume claim or Pod of this name is not gone yet",
            new(),
            Reason::CreatingPod,
            false,
        ),
        refused(
            "the next Pod of what ran is refused",
            lost(),
            Reason::Refused,
            false,
        ),
    ]
}

/// It ran, and its Pod is gone.
fn lost() -> World {
    let mut world = World::running();
    world.facts = Facts::default();
    world
}

/// The image's own entrypoint, without our supervisor.
fn plain(port: Option<u16>) -> World {
    let mut world = started();
    world.spec().command = None;
    world.port = port;
    world.facts.pod = Some(PodFacts {
        supervised: false,
        ..pod()
    });
    world
}

fn unsupervised() -> Vec<Scene> {
    vec![
        scene(
            "no command, no port: the Pod is not `Ready`",
            plain(None),
            |_| {},
        ),
        scene("… the Pod is `Ready`", plain(None), |w| {
            w.pod().ready = true;
        }),
        scene(
            "no command, a port: the Pod is `Ready`, the port does not accept",
            plain(Some(8000)),
            |w| {
                w.pod().ready = true;
                w.facts.answer = Some(Answer::NotReady(None));
            },
        ),
        scene("… the port accepts", plain(Some(8000)), |w| {
            w.pod().ready = true;
            w.facts.answer = Some(Answer::Ready);
        }),
        scene(
            "no command: `state: Paused`, the Pod is gone",
            plain(None),
            |w| {
                w.want(DesiredState::Paused);
                w.facts = Facts::default();
            },
        ),
    ]
}

fn starts() -> Vec<Scene> {
    vec![
        scene(
            "the Pod is being scheduled, or its image pulled",
            started(),
            |_| {},
        ),
        scene("no node takes the Pod", started(), |w| {
            w.pod().unschedulable = Some("0/3 nodes are available".into());
        }),
        scene("the Pod has an address", started(), |w| {
            w.facts.pod = Some(pod());
        }),
        scene("the command runs and is not ready", started(), |w| {
            w.facts.pod = Some(pod());
            w.facts.answer = Some(Answer::NotReady(None));
        }),
        scene("the sandbox says that it is ready", started(), |w| {
            w.facts.pod = Some(pod());
            w.facts.answer = Some(Answer::Ready);
        }),
        scene("`startTimeout` has passed", started(), |w| w.pass(15 * 60)),
        scene("`state: Paused`", started(), |w| {
            w.want(DesiredState::Paused);
        }),
        scene("`state: Stopped`", started(), |w| {
            w.want(DesiredState::Stopped);
        }),
    ]
}

fn troubles() -> Vec<Scene> {
    let troubled = |kind, seconds| {
        move |w: &mut World| {
            w.pod().trouble = Some(trouble(kind, w.now));
            w.step();
            w.pass(seconds);
        }
    };
    let crashed = |ends: u32| {
        move |w: &mut World| {
            w.pod().container = Container {
                state: ContainerState::BackingOff,
                restarts: ends - 1,
                last_end: Some("exit code 1".into()),
                last_words: None,
            };
        }
    };
    vec![
        scene(
            "the image cannot be pulled",
            started(),
            troubled(TroubleKind::ImagePull, 0),
        ),
        scene(
            "… for two minutes",
            started(),
            troubled(TroubleKind::ImagePull, 120),
        ),
        scene("the name of the image is none", started(), |w| {
            w.pod().trouble = Some(trouble(TroubleKind::ImageName, w.now));
        }),
        scene(
            "the container cannot be made",
            started(),
            troubled(TroubleKind::ContainerConfig, 0),
        ),
        scene(
            "… for two minutes",
            started(),
            troubled(TroubleKind::ContainerConfig, 120),
        ),
        scene(
            "a Secret or ConfigMap that it names is missing, for however long",
            started(),
            troubled(TroubleKind::Missing, 120),
        ),
        scene("the command ended once or twice", started(), crashed(1)),
        scene("the command ended three times", started(), crashed(3)),
        scene("the volume claim was deleted", started(), |w| {
            let why = "persistentvolumeclaim \"a-workspace\" not found";
            w.pod().unschedulable = Some(why.into());
        }),
    ]
}

fn running() -> Vec<Scene> {
    let running = World::running;
    vec![
        scene("nothing new", running(), |_| {}),
        scene("the controller was restarted", running(), |w| {
            w.facts.answer = None;
        }),
        scene(
            "the container was started again, for example after `OOMKilled`",
            running(),
            |w| {
                w.facts.answer = None;
                w.pass(600);
                let now = w.now;
                w.pod().container = Container {
                    state: ContainerState::Running {
                        started_at: Some(now),
                    },
                    restarts: 1,
                    last_end: Some("OOMKilled".into()),
                    last_words: None,
                };
            },
        ),
        scene("the sandbox says that it is not ready", running(), |w| {
            w.facts.answer = Some(Answer::NotReady(None));
        }),
        scene("`idleTimeout` has passed since it was ready", idle(), |w| {
            w.facts.quiet = None;
        }),
        scene("… and nothing happens in it", idle(), |_| {}),
        scene("… and nobody can tell", idle(), |w| {
            w.facts.quiet = Some(Quiet {
                asked: w.now,
                since: None,
            });
        }),
        scene("`maxRunTime` has passed", running(), |w| {
            w.deadlines.max_run_time = Some(60 * MINUTE);
            w.pass(3600);
        }),
        scene("`state: Paused`", running(), |w| {
            w.want(DesiredState::Paused);
        }),
        scene("`state: Stopped`", running(), |w| {
            w.want(DesiredState::Stopped);
        }),
    ]
}

fn losses() -> Vec<Scene> {
    let running = World::running;
    vec![
        scene("the Pod was evicted", running(), |w| {
            w.pod().phase = PodPhase::Failed;
            w.pod().reason = Some("Evicted".into());
        }),
        scene("the Pod ended", running(), |w| {
            w.pod().phase = PodPhase::Succeeded;
        }),
        scene("the Pod's node is lost", running(), |w| {
            w.pod().phase = PodPhase::Unknown;
        }),
        scene(
            "its node has stopped reporting, and it answers",
            running(),
            |w| w.pod().silent = true,
        ),
        scene("… and it does not answer", running(), |w| {
            w.pod().silent = true;
            w.facts.answer = Some(Answer::NotReady(None));
        }),
        scene(
            "the Pod is being deleted, by hand or by preemption",
            running(),
            |w| {
                let ends = w.now + SignedDuration::from_secs(10);
                w.pod().deletion = Some(ends);
            },
        ),
        scene(
            "… and does not go 30 s after its grace period",
            running(),
            |w| {
                let ends = w.now;
                w.pod().deletion = Some(ends);
                w.step();
                w.pass(30);
            },
        ),
        scene("the Pod is gone", running(), |w| w.facts = Facts::default()),
        scene(
            "the Pod is gone before anything was ever said",
            World::new(),
            |w| w.facts.lost_pod = true,
        ),
        scene(
            "… again and again: the next one waits for its turn",
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

fn rests() -> Vec<Scene> {
    vec![
        scene(
            "idle: every gateway has heard of it",
            pausing_by_itself(),
            |w| w.pass(2),
        ),
        scene("… and still nothing happens", pausing_by_itself(), |w| {
            confirmed(w, 700);
        }),
        scene(
            "… something happened: the pause is called off",
            pausing_by_itself(),
            |w| {
                confirmed(w, 1);
            },
        ),
        scene(
            "a request came: the pause is called off",
            pausing_by_itself(),
            |w| {
                w.entry.wake_at = Some(w.now);
            },
        ),
        scene("the Pod is gone", pausing_by_itself(), |w| {
            w.facts = Facts::default();
        }),
        scene(
            "idle: a request came, or a resume",
            paused_by_itself(),
            |w| {
                w.entry.wake_at = Some(w.now);
            },
        ),
        scene("idle: `state: Paused`", paused_by_itself(), |w| {
            w.want(DesiredState::Paused);
        }),
        scene("`state: Running`", paused(), |w| {
            w.want(DesiredState::Running);
        }),
        scene("… while the old Pod is still going", paused(), |w| {
            w.want(DesiredState::Running);
            let ends = w.now + SignedDuration::from_secs(10);
            w.facts.pod = Some(PodFacts {
                deletion: Some(ends),
                ..pod()
            });
        }),
        scene("`deletePausedAfter` has passed", paused(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.pass(3600);
        }),
        scene("`state: Stopped`", paused(), |w| {
            w.want(DesiredState::Stopped);
        }),
    ]
}

fn ends() -> Vec<Scene> {
    vec![
        scene("nothing changes", failed(), |_| {}),
        scene("the spec was changed", failed(), |w| {
            w.entry.generation += 1;
        }),
        scene("the template of its pool was changed", failed(), |w| {
            w.entry.status.pool_revision = Some("old".into());
            w.facts.pool_revision = Some("new".into());
        }),
        scene("`deletePausedAfter` has passed", failed(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.step();
            w.pass(3600);
        }),
        scene("`deleteStoppedAfter` has passed", stopped(), |w| {
            w.pass(24 * 3600);
        }),
        scene("`state: Running`", stopped(), |w| {
            w.want(DesiredState::Running);
        }),
        scene("expired, whatever is asked for", paused(), |w| {
            w.deadlines.delete_paused_after = Some(60 * MINUTE);
            w.pass(3600);
            w.entry.status = w.plan().status;
            w.step();
            w.want(DesiredState::Running);
        }),
        scene(
            "the object is being deleted: Kubernetes takes the rest with it",
            World::running(),
            |w| w.entry.deleting = true,
        ),
    ]
}
