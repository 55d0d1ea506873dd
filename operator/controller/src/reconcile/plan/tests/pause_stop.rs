//! Pause, resume, stop and expiry.

use crds::sandbox::PauseReason;

use super::*;

const DAY: i64 = 24 * 3600;

#[test]
fn pausing_deletes_pod_and_keeps_pvc() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Paused);
    let plan = fixture.reaches(Phase::Pausing, Reason::Requested);
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert_eq!(plan.actions.len(), 1);
    assert_eq!(plan.status.pod_status, Some(PodStatus::NotFound));
    assert_eq!(plan.status.pod_ip, None);
    assert_eq!(plan.status.paused_at, None);
    fixture.pod().grace_ends_at = Some(fixture.now);
    assert_eq!(fixture.plan_and_apply().actions, []);
    let mut stuck = fixture.clone();
    let deleted = deletes_pod(&stuck.after(30));
    assert_eq!(deleted, Some(DeletionGrace::Force));

    fixture.lose_pod();
    let status = fixture.reaches(Phase::Paused, Reason::Requested).status;
    assert!(status.paused_at.is_some());
    assert_eq!(status.pause_reason, Some(PauseReason::Requested));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(&status, "Paused").as_deref(), Some("True"));
    assert_eq!(condition(&status, "Ready").as_deref(), Some("False"));
}

#[test]
fn resume_resets_start_and_restart_counters() {
    let mut fixture = PlanFixture::paused();
    fixture.entry.status.restarts.count = 2;
    let started = fixture.status().started_at.clone();
    fixture.set_desired_state(DesiredState::Running);
    assert_eq!(creates_pod(&fixture.after(3600)), Some(0));
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.restarts.count, 0);
    assert!(status.started_at > started);
    assert_eq!((&status.paused_at, status.pause_reason), (&None, None));
    assert!(status.ready_at.is_some());
    assert_eq!(condition(status, "Paused"), None);
}

#[test]
fn resume_waits_until_old_pod_is_gone() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.plan_and_apply();
    fixture.pod().grace_ends_at = fixture.at(10);
    fixture.plan_and_apply();
    fixture.set_desired_state(DesiredState::Running);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Starting));
    fixture.lose_pod();
    let plan = fixture.plan_and_apply();
    assert_eq!(creates_pod(&plan), Some(0), "a resume is not a restart");
    assert_eq!(plan.status.restarts.count, 0);
}

fn delete_claim() -> Action {
    Action::DeleteClaim {
        name: "a-workspace".into(),
    }
}

/// Asserts that the sandbox expires in an hour: status first, then the PVC, finally the object.
fn assert_expires(mut fixture: PlanFixture) {
    assert_eq!(fixture.plan_and_apply().requeue_at, fixture.at(3600));
    fixture.advance(3599);
    assert_ne!(fixture.plan().status.phase, Phase::Stopped);
    fixture.advance(1);
    let plan = fixture.plan();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Stopped);
    assert_eq!(plan.status.reason, Some(Reason::Expired));
    fixture.entry.status = plan.status;
    assert_eq!(fixture.plan_and_apply().actions, [delete_claim()]);
    let plan = fixture.reaches(Phase::Stopped, Reason::Expired);
    assert_eq!((plan.actions, plan.requeue_at), (vec![], fixture.at(DAY)));
    // Expiry is final for wake annotations and spec changes.
    fixture.set_desired_state(DesiredState::Running);
    fixture.entry.wake_at = Some(fixture.now);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Stopped));
    assert_eq!(fixture.after(DAY).actions, [Action::DeleteSandbox]);
}

#[test]
fn paused_or_failed_sandbox_is_stopped_after_delete_paused_after() {
    let mut paused = PlanFixture::new();
    paused.deadlines.delete_paused_after = Some(60 * MINUTE);
    let mut failed = paused.clone();
    paused.advance(DAY);
    paused.set_desired_state(DesiredState::Paused);
    assert_expires(paused);

    failed.facts.pod = Some(pod());
    failed.pod().start_problem = Some(start_problem(StartProblemKind::ImageName, failed.now));
    failed.plan_and_apply();
    failed.facts.pod = None;
    assert_expires(failed);
}

#[test]
fn stopping_deletes_pod_and_pvc_and_leaves_tombstone() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Stopped);
    let plan = fixture.reaches(Phase::Stopped, Reason::Requested);
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert!(plan.actions.contains(&delete_claim()));
    let status = fixture.status();
    assert!(status.stopped_at.is_some());
    assert_eq!(status.workspace_claim, None);
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
    fixture.lose_pod();
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.requeue_at), (vec![], fixture.at(DAY)));
    let mut kept = fixture.clone();
    assert_eq!(fixture.after(DAY).actions, [Action::DeleteSandbox]);

    kept.deadlines.delete_stopped_after = None;
    let plan = kept.after(1_000_000);
    assert_eq!((plan.actions, plan.requeue_at), (vec![], None));
}

#[test]
fn stopping_deletes_pvc_that_status_does_not_mention() {
    let mut fixture = PlanFixture::new();
    fixture.set_desired_state(DesiredState::Stopped);
    assert_eq!(fixture.plan_and_apply().actions, [delete_claim()]);
    fixture.spec().workspace = None;
    assert_eq!(fixture.plan_and_apply().actions, []);
}

#[test]
fn pvc_in_status_is_deleted_when_spec_has_no_workspace() {
    for expires in [false, true] {
        let mut fixture = PlanFixture::paused();
        fixture.deadlines.delete_paused_after = Some(60 * MINUTE);
        fixture.spec().workspace = None;
        if expires {
            fixture.advance(3600);
            fixture.entry.status = fixture.plan().status;
        } else {
            fixture.set_desired_state(DesiredState::Stopped);
        }
        assert_eq!(fixture.plan_and_apply().actions, [delete_claim()]);
        assert_eq!(fixture.status().workspace_claim, None);
    }
}

#[test]
fn pod_of_unreported_resume_is_kept() {
    let mut fixture = PlanFixture::new();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.plan_and_apply();
    fixture.advance(10);
    fixture.set_desired_state(DesiredState::Running);
    assert_eq!(creates_pod(&fixture.plan()), Some(0));
    fixture.facts.pod = Some(pod());
    fixture.pod().created_at = Some(fixture.now);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Starting));
    assert!(plan.probe_readiness);
}
