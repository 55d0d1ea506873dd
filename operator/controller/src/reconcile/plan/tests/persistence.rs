//! Saves before pauses, and what the status says about them.

use crds::contract::persistence::{
    KeptState, PersistenceLevel, PodPersistence, RootMechanism, SaveLimits,
};
use crds::sandbox::{PauseReason, PersistedState, RestoredState};

use super::*;
use crate::facts::{RunStart, SaveProgress};
use crate::reconcile::build::persistence::PersistenceObstacle;

/// A running sandbox of level `Root`.
fn running() -> PlanFixture {
    let mut fixture = PlanFixture::new();
    fixture.spec().persistence = Some(PersistenceLevel::Root);
    fixture.plan_and_apply();
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.facts.pod = Some(rooted_pod("pod-1"));
    fixture.advance(1);
    fixture.reaches(Phase::Running, Reason::Ready);
    fixture
}

pub(super) fn rooted_pod(uid: &str) -> PodFacts {
    let limits = SaveLimits {
        bytes: 1 << 30,
        files: 1000,
        seconds: 60,
    };
    let mut pod = PodFacts {
        uid: uid.into(),
        persistence: Some(PodPersistence {
            level: PersistenceLevel::Root,
            root: RootMechanism::Archive,
            limits,
            withheld: Vec::new(),
        }),
        ..pod()
    };
    pod.container.image = Some("sha256:1".into());
    pod
}

fn kept_root() -> KeptState {
    KeptState {
        bytes: Some(1234),
        ..KeptState::of(PersistenceLevel::Root)
    }
}

fn done(fixture: &PlanFixture, kept: Option<KeptState>) -> SaveProgress {
    SaveProgress::Done(kept, fixture.now)
}

/// Pauses, loses its Pod, and becomes ready with this one and what its supervisor reports.
fn resumes_with(fixture: &mut PlanFixture, pod: PodFacts, start: RunStart) -> SandboxStatus {
    fixture.set_desired_state(DesiredState::Paused);
    fixture.lose_pod();
    fixture.plan_and_apply();
    fixture.set_desired_state(DesiredState::Running);
    fixture.after(10);
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.facts.pod = Some(pod);
    fixture.facts.start = start;
    fixture.reaches(Phase::Running, Reason::Ready).status
}

#[test]
fn pod_is_deleted_after_save_is_in_status() {
    let mut fixture = running();
    assert!(fixture.status().has_state_volume);
    assert_eq!(
        fixture.status().root_mechanism,
        Some(RootMechanism::Archive)
    );
    fixture.set_desired_state(DesiredState::Paused);
    let plan = fixture.reaches(Phase::Pausing, Reason::Requested);
    assert_eq!((plan.actions.len(), plan.save), (0, true));
    fixture.facts.save = Some(SaveProgress::Saving);
    let plan = fixture.after(30);
    assert_eq!((plan.actions.len(), plan.save), (0, true));

    fixture.facts.save = Some(done(&fixture, Some(kept_root())));
    let plan = fixture.plan();
    assert_eq!((&*plan.actions, plan.requeue_at), (&[][..], fixture.at(0)));
    let expected = PersistedState {
        level: PersistenceLevel::Root,
        at: Some(fixture.now.into()),
        size: Some(1234),
        image_digest: Some("sha256:1".into()),
        pod_uid: Some("pod-1".into()),
        reason: None,
    };
    assert_eq!(plan.status.persisted.as_ref(), Some(&expected));
    fixture.entry.status = stored(&plan.status);
    // Another controller has taken over.
    fixture.facts.save = None;
    let plan = fixture.plan_and_apply();
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert!(!plan.save);
    fixture.lose_pod();
    let status = fixture.reaches(Phase::Paused, Reason::Requested).status;
    assert_eq!(status.persisted, Some(expected));
}

#[test]
fn save_with_nothing_new_keeps_what_an_earlier_one_says() {
    let mut fixture = running();
    fixture.entry.status.persisted = Some(PersistedState {
        level: PersistenceLevel::Root,
        pod_uid: Some("pod-0".into()),
        size: Some(7),
        ..PersistedState::default()
    });
    fixture.set_desired_state(DesiredState::Paused);
    fixture.facts.save = Some(done(&fixture, None));
    let status = fixture.reaches(Phase::Pausing, Reason::Requested).status;
    let persisted = status.persisted.unwrap();
    assert_eq!(
        (persisted.size, persisted.level),
        (Some(7), PersistenceLevel::Root)
    );
    assert!(deletes_pod(&fixture.plan_and_apply()).is_some());
}

#[test]
fn pod_that_cannot_be_asked_is_deleted_at_once() {
    for change in [
        (|pod: &mut PodFacts| pod.ip = None) as fn(&mut PodFacts),
        |pod| pod.container.state = ContainerState::BackingOff,
    ] {
        let mut fixture = running();
        change(fixture.pod());
        fixture.set_desired_state(DesiredState::Paused);
        let plan = fixture.reaches(Phase::Pausing, Reason::Requested);
        assert_eq!((deletes_pod(&plan).is_some(), plan.save), (true, false));
    }
}

#[test]
fn pause_of_level_workspace_says_so_and_why() {
    for obstacle in [None, Some(PersistenceObstacle::PlainVolume)] {
        let mut fixture = PlanFixture::running();
        fixture.obstacle = obstacle;
        fixture.set_desired_state(DesiredState::Paused);
        let plan = fixture.reaches(Phase::Pausing, Reason::Requested);
        assert!(deletes_pod(&plan).is_some());
        fixture.lose_pod();
        fixture.plan_and_apply();
        let persisted = fixture.status().persisted.clone().unwrap();
        assert_eq!(persisted.level, PersistenceLevel::Workspace);
        assert_eq!(persisted.reason, obstacle.map(|it| it.to_string()));
    }
    let mut lost = PlanFixture::running();
    lost.spec().workspace = None;
    lost.entry.status.workspace_claim = None;
    lost.set_desired_state(DesiredState::Paused);
    lost.plan_and_apply();
    lost.lose_pod();
    lost.plan_and_apply();
    assert_eq!(lost.status().persisted, None);
}

#[test]
fn reason_of_a_pod_with_less_persistence_outlives_the_pod() {
    for phase in [Phase::Pausing, Phase::Paused] {
        let mut fixture = PlanFixture::running();
        fixture.entry.status.root_mechanism = Some(RootMechanism::Overlay);
        fixture.spec().persistence = Some(PersistenceLevel::Root);
        fixture.obstacle = Some(PersistenceObstacle::OverlayRejected);
        fixture.set_desired_state(DesiredState::Paused);
        fixture.plan_and_apply();
        assert_eq!(fixture.status().phase, Phase::Pausing);
        if phase == Phase::Paused {
            fixture.lose_pod();
            // The rejection was known by the Pod.
            fixture.obstacle = None;
            fixture.advance(5);
            fixture.plan_and_apply();
        }
        let status = fixture.status();
        let persisted = status.persisted.clone().unwrap();
        assert_eq!(
            (status.phase, persisted.level),
            (phase, PersistenceLevel::Workspace)
        );
        let reason = PersistenceObstacle::OverlayRejected.to_string();
        assert_eq!(persisted.reason, Some(reason));
    }
}

#[test]
fn pod_that_ended_before_a_save_leaves_what_its_mechanism_has_on_the_volume() {
    for (mechanism, level) in [
        (RootMechanism::Archive, PersistenceLevel::Workspace),
        (RootMechanism::Overlay, PersistenceLevel::Root),
    ] {
        let mut fixture = running();
        fixture.entry.status.root_mechanism = Some(mechanism);
        fixture.set_desired_state(DesiredState::Paused);
        fixture.lose_pod();
        fixture.advance(5);
        let status = fixture.reaches(Phase::Paused, Reason::Requested).status;
        let persisted = status.persisted.unwrap();
        assert_eq!(persisted.level, level);
        assert_eq!(persisted.reason.is_some(), level < PersistenceLevel::Root);
    }
}

#[test]
fn terminating_pod_of_a_silent_node_is_saved_until_it_is_force_deleted() {
    for paused in [false, true] {
        let mut fixture = running();
        if paused {
            fixture.set_desired_state(DesiredState::Paused);
        }
        fixture.pod().grace_ends_at = Some(fixture.now);
        assert!(!fixture.plan().save, "a kubelet ends the command");
        fixture.pod().node_silent = true;
        let plan = fixture.plan_and_apply();
        assert_eq!((&*plan.actions, plan.save), (&[][..], true), "{paused}");
        if !paused {
            let message = "the Pod is being deleted; node node-1 is not reporting";
            assert_eq!(plan.status.message.as_deref(), Some(message));
        }
        fixture.facts.save = Some(done(&fixture, Some(kept_root())));
        let plan = fixture.plan_and_apply();
        assert_eq!(plan.status.persisted.unwrap().size, Some(1234));
        let plan = fixture.after(30);
        assert_eq!(deletes_pod(&plan), Some(DeletionGrace::Force));
        assert!(!plan.save);
    }
    let mut fixture = running();
    fixture.pod().node_silent = true;
    fixture.pod().grace_ends_at = Some(fixture.now);
    fixture.facts.save = Some(SaveProgress::Saving);
    assert!(fixture.plan_and_apply().save);
    let deleted = deletes_pod(&fixture.after(30));
    assert_eq!(deleted, Some(DeletionGrace::Force));
}

#[test]
fn resume_waits_for_the_end_of_a_save_and_replaces_the_pod() {
    for requested in [true, false] {
        let mut fixture = running();
        if requested {
            fixture.set_desired_state(DesiredState::Paused);
        } else {
            let status = &mut fixture.entry.status;
            status.phase = Phase::Pausing;
            status.pause_reason = Some(PauseReason::MaxRunTime);
            status.paused_at = Some(fixture.now.into());
        }
        fixture.facts.save = Some(SaveProgress::Saving);
        fixture.plan_and_apply();
        fixture.set_desired_state(DesiredState::Running);
        fixture.entry.wake_at = fixture.at(5);
        let plan = fixture.after(10);
        assert_eq!((&*plan.actions, plan.save), (&[][..], true), "{requested}");
        assert_eq!(plan.status.phase, Phase::Pausing);
        fixture.facts.save = Some(done(&fixture, Some(kept_root())));
        let plan = fixture.plan();
        assert!(deletes_pod(&plan).is_some(), "{requested}");
        assert_eq!(plan.status.persisted.unwrap().size, Some(1234));
    }
}

#[test]
fn incarnation_rises_unless_processes_went_on() {
    let mut fixture = running();
    assert_eq!(fixture.status().incarnation, 1);
    assert_eq!(fixture.status().restored, None);
    for (restored, incarnation) in [
        (None, 2),
        (Some(KeptState::of(PersistenceLevel::Root)), 3),
        (Some(KeptState::of(PersistenceLevel::Memory)), 3),
    ] {
        let start = RunStart {
            restored: restored.clone(),
            processes_id: None,
        };
        let pod = rooted_pod(&format!("pod-{restored:?}"));
        let status = resumes_with(&mut fixture, pod, start);
        assert_eq!(status.incarnation, incarnation);
        let level = restored.map_or(PersistenceLevel::Workspace, |kept| kept.level);
        let expected = RestoredState {
            level,
            at: Some(fixture.now.into()),
            reason: None,
        };
        assert_eq!(status.restored, Some(expected));
    }
}

#[test]
fn processes_are_told_apart_by_their_id() {
    let mut fixture = PlanFixture::running();
    fixture.spec().persistence = Some(PersistenceLevel::Memory);
    fixture.facts.start.processes_id = Some("first".into());
    fixture.after(1);
    assert_eq!(fixture.status().incarnation, 1);
    // Pod, level of its report, id of its processes, expected number.
    let starts = [
        ("pod-2", PersistenceLevel::Memory, Some("first"), 1),
        // Processes that began anew in another Pod and were saved there before they were ready.
        ("pod-3", PersistenceLevel::Memory, Some("third"), 2),
        ("pod-4", PersistenceLevel::Root, Some("fourth"), 3),
        // A supervisor of an earlier version.
        ("pod-5", PersistenceLevel::Memory, None, 3),
        ("pod-6", PersistenceLevel::Root, None, 4),
        // Its processes began in a Pod that was never ready.
        ("pod-7", PersistenceLevel::Memory, Some("seventh"), 5),
    ];
    for (pod, level, id, incarnation) in starts {
        let start = RunStart {
            restored: Some(KeptState::of(level)),
            processes_id: id.map(str::to_owned),
        };
        let status = resumes_with(&mut fixture, rooted_pod(pod), start);
        assert_eq!(status.incarnation, incarnation, "{pod}");
        assert_eq!(status.processes_id.as_deref(), id, "{pod}");
    }
}

#[test]
fn supervisor_without_ids_ends_the_use_of_an_earlier_id() {
    let mut fixture = PlanFixture::running();
    // As an earlier version of the operator leaves it.
    fixture.entry.status.processes_id = Some("earlier".into());
    fixture.after(1);
    assert_eq!(fixture.status().processes_id, None);
    fixture.pod().container.restarts = 1;
    fixture.after(1);
    assert_eq!(fixture.status().incarnation, 2);
}

#[test]
fn restart_in_a_pod_counts_processes_that_began_anew_only() {
    let mut fixture = PlanFixture::running();
    fixture.facts.start.processes_id = Some("first".into());
    fixture.after(1);
    for (restarts, id, incarnation) in [(1, "first", 1), (2, "second", 2)] {
        fixture.pod().container.restarts = restarts;
        fixture.facts.readiness = None;
        fixture.facts.start = RunStart::default();
        fixture.after(1);
        fixture.facts.readiness = Some(ProbeResult::Ready);
        fixture.facts.start.processes_id = Some(id.into());
        fixture.after(1);
        assert_eq!(fixture.status().incarnation, incarnation, "{id}");
    }
}

#[test]
fn pod_from_before_the_answer_of_a_probe_has_a_reason_for_its_level() {
    let mut fixture = running();
    let pod = PodFacts {
        persistence: None,
        ..rooted_pod("pod-2")
    };
    let status = resumes_with(&mut fixture, pod, RunStart::default());
    let restored = status.restored.unwrap();
    assert_eq!(restored.level, PersistenceLevel::Workspace);
    let expected = "the Pod was created before more was known to work";
    assert_eq!(restored.reason.as_deref(), Some(expected));
}

#[test]
fn incarnation_rises_with_restarts_of_processes_without_id() {
    let mut fixture = PlanFixture::running();
    fixture.pod().container.restarts = 1;
    fixture.after(1);
    assert_eq!(fixture.status().incarnation, 2);
    // The node was silent for a while.
    fixture.facts.readiness = Some(ProbeResult::NotReady(None));
    fixture.after(1);
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.after(1);
    assert_eq!(fixture.status().incarnation, 2);
}

#[test]
fn stop_forgets_what_was_kept() {
    let mut fixture = running();
    fixture.entry.status.persisted = Some(PersistedState::default());
    fixture.entry.status.restored = Some(RestoredState::default());
    fixture.set_desired_state(DesiredState::Stopped);
    fixture.plan_and_apply();
    let status = fixture.status();
    assert_eq!((&status.persisted, &status.restored), (&None, &None));
    assert!(!status.has_state_volume && status.root_mechanism.is_none());
}
