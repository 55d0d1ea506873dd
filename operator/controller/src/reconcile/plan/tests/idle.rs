//! Automatic pauses and wakes.

use crds::sandbox::PauseReason;

use super::*;

/// A running sandbox with an idle timeout of ten minutes.
fn with_idle_timeout() -> PlanFixture {
    let mut fixture = PlanFixture::running();
    fixture.deadlines.idle_timeout = Some(10 * MINUTE);
    fixture
}

/// A sandbox whose first idle check reports ten minutes without activity.
fn idle() -> PlanFixture {
    let mut fixture = with_idle_timeout();
    fixture.advance(600);
    fixture.report_idle_for(600);
    fixture
}

impl PlanFixture {
    /// Waits until every gateway has seen the pause, which leads to the second idle check.
    fn wait_for_pause_propagation(&mut self) {
        let plan = self.plan_and_apply();
        assert_eq!((plan.actions, plan.check_idle), (vec![], false));
        assert!(self.after(2).check_idle);
    }

    /// Completes a pause up to the deletion of the Pod.
    fn complete_pause(&mut self, by: PauseReason) {
        let plan = self.plan_and_apply();
        // The status is written first: gateways must know before the Pod is deleted.
        assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Pausing));
        assert_eq!(self.status().pause_reason, Some(by));
        if by == PauseReason::Idle {
            self.wait_for_pause_propagation();
            self.report_idle_for(10_000);
        }
        let deleted = deletes_pod(&self.plan_and_apply());
        assert_eq!(deleted, Some(DeletionGrace::PodDefault));
        self.lose_pod();
        self.plan_and_apply();
        assert_eq!(self.status().phase, Phase::Paused);
        assert_eq!(self.status().pause_reason, Some(by));
        assert_eq!(condition(self.status(), "Paused").as_deref(), Some("True"));
        assert_eq!(self.plan_and_apply().actions, []);
    }
}

#[test]
fn idle_sandbox_is_paused_without_spec_change() {
    let mut fixture = with_idle_timeout();
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.requeue_at, plan.check_idle), (fixture.at(600), false));
    let plan = fixture.after(600);
    assert!(plan.check_idle, "an idle check must precede the pause");
    assert_eq!(plan.status.phase, Phase::Running);
    fixture.report_idle_for(600);
    fixture.complete_pause(PauseReason::Idle);
    assert_eq!(fixture.status().reason, Some(Reason::Idle));
    assert_eq!(fixture.entry.spec.state, DesiredState::Running);
}

#[test]
fn activity_moves_idle_deadline() {
    let mut fixture = with_idle_timeout();
    fixture.advance(600);
    fixture.report_idle_for(100);
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert_eq!(plan.requeue_at, fixture.at(500));
    assert!(fixture.after(500).check_idle, "the old report has expired");
    fixture.report_idle_for(0);
    assert_eq!(fixture.plan_and_apply().requeue_at, fixture.at(600));
}

#[test]
fn unknown_idle_time_does_not_pause() {
    let mut fixture = with_idle_timeout();
    fixture.advance(6000);
    fixture.report_idle_for(None);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.requeue_at, plan.check_idle), (fixture.at(30), false));
    assert!(fixture.after(30).check_idle);
    assert_eq!(fixture.status().phase, Phase::Running);
}

#[test]
fn time_before_ready_does_not_count_as_idle() {
    let mut fixture = with_idle_timeout();
    fixture.report_idle_for(100_000);
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert!(plan.requeue_at > Some(fixture.now));
}

#[test]
fn wake_annotation_ends_idle_pause() {
    let mut fixture = idle();
    fixture.complete_pause(PauseReason::Idle);
    let since = fixture.status().paused_at.clone().unwrap().0;
    fixture.entry.wake_at = Some(since - SignedDuration::from_secs(1));
    let plan = fixture.after(60);
    assert_eq!(plan.actions, [], "the annotation is older than the pause");
    fixture.entry.wake_at = Some(since);
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(0));
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!((&status.paused_at, status.pause_reason), (&None, None));
}

#[test]
fn late_activity_cancels_idle_pause() {
    for idle_seconds in [Some(1), None] {
        let mut fixture = idle();
        fixture.plan_and_apply();
        fixture.wait_for_pause_propagation();
        fixture.report_idle_for(idle_seconds);
        let plan = fixture.plan_and_apply();
        assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Running));
        let status = fixture.status();
        assert_eq!((status.pause_reason, status.incarnation), (None, 1));
    }
}

#[test]
fn idle_report_older_than_deadline_is_ignored() {
    let mut fixture = with_idle_timeout();
    fixture.deadlines.idle_timeout = Some(Duration::from_secs(2));
    fixture.advance(10);
    fixture.report_idle_for(0);
    fixture.plan_and_apply();
    assert!(fixture.after(2).check_idle);
    assert_eq!(fixture.status().phase, Phase::Running);
}

#[test]
fn future_wake_annotation_prevents_pause() {
    let mut fixture = with_idle_timeout();
    fixture.deadlines.max_run_time = Some(5 * MINUTE);
    let started = fixture.status().started_at.clone().unwrap().0;
    let run_ends = started + SignedDuration::from_mins(5);
    assert_eq!(fixture.plan().requeue_at, Some(run_ends));
    fixture.entry.wake_at = fixture.at(30 * 60);
    fixture.advance(20 * 60);
    fixture.report_idle_for(20 * 60);
    fixture.reaches(Phase::Running, Reason::Ready);
    fixture.advance(10 * 60 + 1);
    fixture.complete_pause(PauseReason::MaxRunTime);
}
