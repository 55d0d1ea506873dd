//! Pods that wait for a resume: when they are created, kept and deleted, and the order of a resume.

use crds::sandbox::PauseReason;

use super::super::warm_resume::MAX_WAITING_PODS;
use super::persistence::rooted_pod;
use super::*;

const HOUR: i64 = 3600;

/// A paused sandbox whose next Pod may wait for an hour.
fn paused() -> PlanFixture {
    let mut fixture = PlanFixture::paused();
    fixture.deadlines.warm_resume_for = Some(60 * MINUTE);
    fixture
}

/// A paused sandbox with a Pod that waits since 100 s.
fn waiting() -> PlanFixture {
    let mut fixture = paused();
    assert_eq!(fixture.after(1).actions, [create(&fixture)]);
    fixture.facts.pod = Some(PodFacts {
        uid: "pod-2".into(),
        created_at: Some(fixture.now),
        scheduled_at: Some(fixture.now),
        created_in_pause: paused_at(&fixture),
        ..pod()
    });
    fixture.run_container();
    assert_eq!(fixture.after(100).actions, []);
    fixture
}

fn paused_at(fixture: &PlanFixture) -> Option<Timestamp> {
    fixture.status().paused_at.as_ref().map(|at| at.0)
}

fn create(fixture: &PlanFixture) -> Action {
    let paused_at = paused_at(fixture).unwrap();
    Action::CreateWaitingPod { paused_at }
}

fn resume(fixture: &mut PlanFixture) -> Plan {
    fixture.set_desired_state(DesiredState::Running);
    fixture.plan_and_apply()
}

#[test]
fn pod_waits_from_the_written_pause_until_its_time_is_over() {
    let mut fixture = PlanFixture::running();
    fixture.deadlines.warm_resume_for = Some(60 * MINUTE);
    fixture.set_desired_state(DesiredState::Paused);
    assert!(deletes_pod(&fixture.plan_and_apply()).is_some());
    fixture.lose_pod();
    let plan = fixture.reaches(Phase::Paused, Reason::Requested);
    assert_eq!(plan.actions, [], "the pause is not written");

    let mut fixture = waiting();
    let before = fixture.status().clone();
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.status, before);
    assert!(!plan.probe_readiness && !plan.save && !plan.check_idle);
    assert_eq!(plan.requeue_at, fixture.at(HOUR - 101));
    let plan = fixture.after(HOUR - 101);
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    fixture.pod().grace_ends_at = fixture.at(10);
    assert_eq!(fixture.plan_and_apply().actions, []);
    fixture.lose_pod();
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.status), (vec![], before));
}

#[test]
fn no_pod_waits_without_a_wish_a_supervisor_or_a_workspace() {
    let changes: [fn(&mut PlanFixture); 6] = [
        |it| it.deadlines.warm_resume_for = None,
        |it| it.spec().command = None,
        |it| it.spec().workspace = None,
        |it| it.entry.status.workspace_claim = None,
        |it| it.entry.status.ready_at = None,
        |it| it.facts.waiting_pods = MAX_WAITING_PODS,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut fixture = paused();
        fixture.facts.waiting_pods = MAX_WAITING_PODS - 1;
        assert_eq!(fixture.plan().actions, [create(&fixture)]);
        change(&mut fixture);
        assert_eq!(fixture.plan().actions, [], "change {at}");
    }
}

/// Changes after which a Pod that waits is of no use.
const USELESS: [fn(&mut PlanFixture); 7] = [
    |it| it.facts.spec_changed = true,
    |it| it.spec().key_rotation = Some(1),
    |it| it.pod().phase = PodPhase::Failed,
    |it| it.pod().container.restarts = 1,
    |it| it.pod().container.state = ContainerState::Terminated,
    |it| {
        let problem = start_problem(StartProblemKind::ImagePull, it.now);
        it.pod().start_problem = Some(problem);
    },
    // It was created in an earlier pause, and its command may have run.
    |it| it.pod().created_in_pause = it.at(-1000),
];

#[test]
fn useless_pod_is_deleted_in_the_pause() {
    for (at, change) in USELESS.into_iter().enumerate() {
        let mut fixture = waiting();
        change(&mut fixture);
        assert!(deletes_pod(&fixture.plan()).is_some(), "change {at}");
    }
}

#[test]
fn resume_replaces_useless_pod() {
    for (at, change) in USELESS.into_iter().enumerate() {
        let mut fixture = waiting();
        change(&mut fixture);
        fixture.set_desired_state(DesiredState::Running);
        let plan = fixture.plan();
        assert!(deletes_pod(&plan).is_some(), "change {at}");
        assert!(!plan.probe_readiness, "change {at}");
        let waits = fixture
            .facts
            .pod
            .as_ref()
            .unwrap()
            .waits_for_resume(fixture.status());
        assert_ne!(
            plan.write_status, waits,
            "change {at}: it must not become the Pod of the start"
        );
        fixture.lose_pod();
        let plan = fixture.plan_and_apply();
        assert_eq!(plan.status.phase, Phase::Starting, "change {at}");
        assert_eq!(creates_pod(&plan), Some(0), "change {at}");
    }
}

#[test]
fn resume_is_written_before_the_pod_is_probed() {
    let mut fixture = waiting();
    let mut lost_write = fixture.clone();
    let plan = resume(&mut fixture);
    assert_eq!(plan.actions, []);
    assert!(plan.write_status && !plan.probe_readiness);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.pod_name.as_deref(), Some("a"));

    lost_write.set_desired_state(DesiredState::Running);
    assert!(!lost_write.plan().probe_readiness);
    lost_write.set_desired_state(DesiredState::Paused);
    assert_eq!(lost_write.plan_and_apply().actions, [], "it waits on");

    let plan = fixture.plan_and_apply();
    assert!(plan.probe_readiness);
    assert_eq!(plan.actions, []);
    fixture.facts.readiness = Some(ProbeResult::Ready);
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert_eq!(plan.status.pod_uid.as_deref(), Some("pod-2"));
    assert_eq!(plan.status.restarts.count, 0);
    let stages = (&plan.status.scheduled_at, &plan.status.container_started_at);
    assert_eq!(stages, (&None, &None), "they are older than the start");
}

#[test]
fn pod_of_a_written_resume_is_a_used_one_in_the_next_pause() {
    let mut fixture = waiting();
    resume(&mut fixture);
    assert!(fixture.after(5).probe_readiness);
    fixture.set_desired_state(DesiredState::Paused);
    let plan = fixture.reaches(Phase::Pausing, Reason::Requested);
    assert!(deletes_pod(&plan).is_some() && !plan.probe_readiness);
    fixture.lose_pod();
    fixture.reaches(Phase::Paused, Reason::Requested);
    assert_eq!(fixture.plan_and_apply().actions, [create(&fixture)]);
}

#[test]
fn waiting_pod_of_an_idle_pause_is_neither_saved_nor_probed() {
    let mut fixture = waiting();
    fixture.set_desired_state(DesiredState::Running);
    fixture.entry.status.pause_reason = Some(PauseReason::Idle);
    fixture.entry.status.observed_generation = Some(fixture.entry.generation);
    fixture.pod().persistence = rooted_pod("pod-2").persistence;
    fixture.deadlines.idle_timeout = Some(10 * MINUTE);
    let before = fixture.status().persisted.clone();
    let plan = fixture.after(100);
    assert_eq!(plan.status.phase, Phase::Paused);
    assert!(!plan.probe_readiness && !plan.save && !plan.check_idle);
    assert_eq!((plan.actions, plan.status.persisted), (vec![], before));
    fixture.entry.wake_at = Some(fixture.now);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Starting));
    assert!(fixture.plan_and_apply().probe_readiness);
}

#[test]
fn sandbox_without_quota_gives_up_its_waiting_pod() {
    let mut fixture = waiting();
    fixture.facts.quota = queued();
    let plan = resume(&mut fixture);
    assert!(deletes_pod(&plan).is_some());
    assert!(!plan.probe_readiness && !plan.write_status);
    fixture.lose_pod();
    fixture.facts.quota = queued();
    let plan = fixture.reaches(Phase::Pending, Reason::QuotaExceeded);
    assert_eq!(plan.actions, []);
}

#[test]
fn resumed_pod_gets_its_resources_once_ready_and_is_kept_without_them() {
    let mut fixture = waiting();
    fixture.pod().is_small = true;
    assert_eq!(resume(&mut fixture).actions, []);
    fixture.facts.readiness = Some(ProbeResult::Ready);
    assert_eq!(fixture.reaches(Phase::Running, Reason::Ready).actions, []);
    assert_eq!(fixture.plan_and_apply().actions, [Action::ResizePod]);
    fixture.pod().resize_problem = Some(ResizeProblem {
        is_final: true,
        message: "the node is too small".into(),
    });
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert_eq!(plan.actions, []);
    let message = plan.status.message.unwrap();
    assert!(
        message.contains("resources are not raised: the node"),
        "{message}"
    );
}

#[test]
fn end_of_a_paused_sandbox_ends_its_waiting_pod() {
    let mut stopped = waiting();
    stopped.set_desired_state(DesiredState::Stopped);
    assert!(deletes_pod(&stopped.plan_and_apply()).is_some());

    let mut expired = waiting();
    expired.deadlines.delete_paused_after = Some(10 * MINUTE);
    let plan = expired.after(600);
    assert_eq!(plan.status.phase, Phase::Stopped);
    assert!(deletes_pod(&plan).is_some());
}
