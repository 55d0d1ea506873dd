//! Pause, resume, stop and expiry.

use crds::sandbox::PauseReason;

use super::*;

#[test]
fn pausing_deletes_pod_and_keeps_pvc() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Paused);
    let plan = fixture.plan_and_apply();
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert_eq!(plan.actions.len(), 1);
    assert_eq!(plan.status.phase, Phase::Pausing);
    assert_eq!(plan.status.pod_status, Some(PodStatus::NotFound));
    assert_eq!(plan.status.pod_ip, None);
    assert_eq!(plan.status.paused_at, None);
    let ends = fixture.now;
    fixture.pod().grace_ends_at = Some(ends);
    assert_eq!(fixture.plan_and_apply().actions, []);
    fixture.facts = Facts::default();
    fixture.plan_and_apply();
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Paused);
    assert!(status.paused_at.is_some());
    assert_eq!(status.pause_reason, Some(PauseReason::Requested));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(status, "Paused").as_deref(), Some("True"));
    assert_eq!(condition(status, "Ready").as_deref(), Some("False"));
}

#[test]
fn stuck_pod_is_force_deleted_while_pausing() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.plan_and_apply();
    let ends = fixture.now;
    fixture.pod().grace_ends_at = Some(ends);
    fixture.advance(30);
    assert_eq!(
        deletes_pod(&fixture.plan_and_apply()),
        Some(DeletionGrace::Force)
    );
}

#[test]
fn resume_resets_start_and_restart_counters() {
    let mut fixture = PlanFixture::running();
    fixture.entry.status.restarts.count = 2;
    let started = fixture.status().started_at.clone();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.facts = Facts::default();
    fixture.plan_and_apply();
    fixture.advance(3600);
    fixture.set_desired_state(DesiredState::Running);
    let plan = fixture.plan_and_apply();
    assert_eq!(creates_pod(&plan), Some(0));
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
    let ends = fixture.now + SignedDuration::from_secs(10);
    fixture.pod().grace_ends_at = Some(ends);
    fixture.plan_and_apply();
    fixture.set_desired_state(DesiredState::Running);
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    fixture.facts = Facts::default();
    let plan = fixture.plan_and_apply();
    assert_eq!(creates_pod(&plan), Some(0), "a resume is not a restart");
    assert_eq!(plan.status.restarts.count, 0);
}

#[test]
fn paused_sandbox_is_stopped_after_delete_paused_after() {
    let mut fixture = PlanFixture::new();
    fixture.deadlines.delete_paused_after = Some(60 * MINUTE);
    fixture.set_desired_state(DesiredState::Paused);
    let plan = fixture.plan_and_apply();
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_hours(1))
    );
    fixture.advance(3600);
    assert_expires(&mut fixture);
}

fn delete_claim() -> Action {
    Action::DeleteClaim {
        name: "a-workspace".into(),
    }
}

/// Asserts that the sandbox expires: status first, then the PVC, finally the object.
fn assert_expires(fixture: &mut PlanFixture) {
    assert_eq!(fixture.plan().actions, []);
    let plan = fixture.plan();
    assert_eq!(plan.status.phase, Phase::Stopped);
    assert_eq!(plan.status.reason, Some(Reason::Expired));
    fixture.entry.status = plan.status;
    assert_eq!(fixture.plan_and_apply().actions, [delete_claim()]);
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.reason, Some(Reason::Expired));
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_hours(24))
    );
    // Expiry is final for wake annotations and spec changes.
    fixture.set_desired_state(DesiredState::Running);
    fixture.entry.wake_at = Some(fixture.now);
    assert_eq!(fixture.plan_and_apply().actions, []);
    assert_eq!(fixture.status().phase, Phase::Stopped);
    fixture.advance(24 * 3600);
    assert_eq!(fixture.plan_and_apply().actions, [Action::DeleteSandbox]);
}

#[test]
fn failed_sandbox_is_stopped_after_delete_paused_after() {
    let mut fixture = PlanFixture::new();
    fixture.deadlines.delete_paused_after = Some(60 * MINUTE);
    fixture.plan_and_apply();
    fixture.facts.pod = Some(PodFacts {
        start_problem: Some(start_problem(StartProblemKind::ImageName, fixture.now)),
        ..pod()
    });
    fixture.plan_and_apply();
    fixture.facts.pod = None;
    let plan = fixture.plan_and_apply();
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_hours(1))
    );
    fixture.advance(3600);
    assert_expires(&mut fixture);
}

#[test]
fn stopping_deletes_pod_and_pvc_and_leaves_tombstone() {
    let mut fixture = PlanFixture::running();
    fixture.set_desired_state(DesiredState::Stopped);
    let plan = fixture.plan_and_apply();
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert!(plan.actions.contains(&delete_claim()));
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Stopped);
    assert!(status.stopped_at.is_some());
    assert_eq!(status.workspace_claim, None);
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
    fixture.facts = Facts::default();
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_hours(24))
    );
    fixture.advance(24 * 3600);
    assert_eq!(fixture.plan_and_apply().actions, [Action::DeleteSandbox]);
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
        let mut fixture = PlanFixture::running();
        fixture.deadlines.delete_paused_after = Some(60 * MINUTE);
        fixture.set_desired_state(DesiredState::Paused);
        fixture.facts = Facts::default();
        fixture.plan_and_apply();
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
fn tombstone_without_deadline_is_kept() {
    let mut fixture = PlanFixture::new();
    fixture.deadlines.delete_stopped_after = None;
    fixture.set_desired_state(DesiredState::Stopped);
    fixture.plan_and_apply();
    fixture.advance(1_000_000);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.requeue_at), (vec![], None));
}

#[test]
fn pod_of_unreported_resume_is_kept() {
    let mut fixture = PlanFixture::new();
    fixture.set_desired_state(DesiredState::Paused);
    fixture.plan_and_apply();
    fixture.advance(10);
    fixture.set_desired_state(DesiredState::Running);
    let plan = fixture.plan();
    assert_eq!(creates_pod(&plan), Some(0));
    fixture.facts.pod = Some(PodFacts {
        created_at: Some(fixture.now),
        ..pod()
    });
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert!(plan.probe_readiness);
}
