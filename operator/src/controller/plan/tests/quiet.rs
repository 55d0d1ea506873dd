//! Pauses that nobody asked for, and what ends them.

use crds::conditions::Reason;
use crds::sandbox::PauseReason;

use super::*;
use crate::controller::facts::Quiet;

/// Runs and is paused after ten minutes without activity.
fn lazy() -> World {
    let mut world = World::running();
    world.deadlines.idle_timeout = Some(10 * MINUTE);
    world
}

impl World {
    /// It is found out that nothing has happened for so many seconds.
    fn quiet_for(&mut self, seconds: i64) {
        self.facts.quiet = Some(Quiet {
            asked: self.now,
            since: Some(self.now - SignedDuration::from_secs(seconds)),
        });
    }

    /// Every gateway knows that it pauses; now they are asked once more.
    fn hears_of_it(&mut self) {
        let plan = self.step();
        assert_eq!((plan.actions, plan.asks_quiet), (vec![], false));
        self.pass(2);
        assert!(self.step().asks_quiet);
    }

    /// Goes through a pause up to the Pod's end.
    fn rest(&mut self, by: PauseReason) {
        let plan = self.step();
        // The status comes first: gateways must know before the Pod ends.
        assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Pausing));
        assert_eq!(self.status().pause_reason, Some(by));
        if by == PauseReason::Idle {
            self.hears_of_it();
            self.quiet_for(10_000);
        }
        assert_eq!(deletes_pod(&self.step()), Some(Grace::Own));
        self.facts = Facts::default();
        self.step();
        assert_eq!(self.status().phase, Phase::Paused);
        assert_eq!(self.status().pause_reason, Some(by));
        assert_eq!(condition(self.status(), "Paused").as_deref(), Some("True"));
        assert_eq!(self.step().actions, []);
    }
}

#[test]
fn nobody_is_asked_before_the_deadline() {
    let mut world = lazy();
    let plan = world.step();
    let ready_at = world.status().ready_at.clone().unwrap().0;
    assert_eq!(plan.next, Some(ready_at + SignedDuration::from_mins(10)));
    assert!(!plan.asks_quiet);
}

#[test]
fn an_idle_sandbox_is_paused_and_its_spec_left_alone() {
    let mut world = lazy();
    world.pass(600);
    let plan = world.step();
    assert!(plan.asks_quiet, "never by guess");
    assert_eq!(plan.status.phase, Phase::Running);
    world.quiet_for(600);
    world.rest(PauseReason::Idle);
    assert_eq!(world.status().reason, Some(Reason::Idle));
    assert_eq!(world.entry.spec.state, DesiredState::Running);
}

#[test]
fn activity_moves_the_deadline() {
    let mut world = lazy();
    world.pass(600);
    world.quiet_for(100);
    let plan = world.step();
    assert_eq!(plan.status.phase, Phase::Running);
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_secs(500)));
    world.pass(500);
    assert!(
        world.step().asks_quiet,
        "the old answer says nothing about now"
    );
    world.quiet_for(0);
    let plan = world.step();
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_mins(10)));
}

#[test]
fn what_cannot_be_found_out_pauses_nothing() {
    let mut world = lazy();
    world.pass(6000);
    world.facts.quiet = Some(Quiet {
        asked: world.now,
        since: None,
    });
    let plan = world.step();
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_secs(30)));
    assert!(!plan.asks_quiet);
    world.pass(30);
    assert!(world.step().asks_quiet);
    assert_eq!(world.status().phase, Phase::Running);
}

#[test]
fn time_before_it_was_ready_does_not_count() {
    let mut world = lazy();
    world.quiet_for(100_000);
    let plan = world.step();
    assert_eq!(plan.status.phase, Phase::Running);
    assert!(plan.next > Some(world.now));
}

#[test]
fn without_a_timeout_it_runs_for_ever() {
    let mut world = World::running();
    world.pass(1_000_000);
    world.quiet_for(1_000_000);
    let plan = world.step();
    assert_eq!((plan.next, plan.status.phase), (None, Phase::Running));
}

#[test]
fn a_wish_to_be_awake_ends_the_pause() {
    let mut world = lazy();
    world.pass(600);
    world.quiet_for(600);
    world.rest(PauseReason::Idle);
    world.pass(60);
    let since = world.status().paused_at.clone().unwrap().0;
    world.entry.wake_at = Some(since - SignedDuration::from_secs(1));
    assert_eq!(
        world.step().actions,
        [],
        "that wish was for an earlier pause"
    );
    world.entry.wake_at = Some(since);
    assert_eq!(creates_pod(&world.step()), Some(0));
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().paused_at, None);
    assert_eq!(world.status().pause_reason, None);
}

#[test]
fn a_pause_is_called_off_while_the_pod_is_alive() {
    let mut world = lazy();
    world.pass(600);
    world.quiet_for(600);
    world.step();
    world.entry.wake_at = world.status().paused_at.as_ref().map(|t| t.0);
    let plan = world.step();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Running));
    assert_eq!(world.status().pause_reason, None);
}

#[test]
fn activity_at_the_last_moment_calls_a_pause_off() {
    for quiet in [Some(1), None] {
        let mut world = lazy();
        world.pass(600);
        world.quiet_for(600);
        world.step();
        world.hears_of_it();
        world.facts.quiet = Some(Quiet {
            asked: world.now,
            since: quiet.map(|seconds| world.now - SignedDuration::from_secs(seconds)),
        });
        let plan = world.step();
        assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Running));
        assert_eq!(world.status().pause_reason, None);
    }
}

#[test]
fn an_answer_from_before_the_deadline_proves_nothing() {
    let mut world = lazy();
    world.deadlines.idle_timeout = Some(Duration::from_secs(2));
    world.pass(10);
    world.quiet_for(0);
    world.step();
    world.pass(2);
    assert!(world.step().asks_quiet);
    assert_eq!(world.status().phase, Phase::Running);
}

#[test]
fn a_pod_that_is_on_its_way_out_is_waited_for() {
    let mut world = lazy();
    world.pass(600);
    world.quiet_for(600);
    world.step();
    world.hears_of_it();
    world.quiet_for(700);
    world.step();
    let ends = world.now + SignedDuration::from_secs(10);
    world.pod().deletion = Some(ends);
    world.entry.wake_at = world.status().paused_at.as_ref().map(|t| t.0);
    let plan = world.step();
    assert_eq!((plan.actions, plan.status.phase), (vec![], Phase::Starting));
    world.facts = Facts::default();
    assert_eq!(creates_pod(&world.step()), Some(0));
}

#[test]
fn a_wish_for_later_keeps_it_awake() {
    let mut world = lazy();
    world.deadlines.max_run_time = Some(5 * MINUTE);
    world.entry.wake_at = Some(world.now + SignedDuration::from_mins(30));
    world.pass(20 * 60);
    world.quiet_for(20 * 60);
    let plan = world.step();
    assert_eq!(plan.status.phase, Phase::Running);
    world.pass(10 * 60 + 1);
    world.rest(PauseReason::MaxRunTime);
}

#[test]
fn the_longest_run_time_ends_in_a_pause() {
    let mut world = World::running();
    world.deadlines.max_run_time = Some(60 * MINUTE);
    let started = world.status().started_at.clone().unwrap().0;
    let plan = world.step();
    assert_eq!(plan.next, Some(started + SignedDuration::from_hours(1)));
    world.pass(60 * 60);
    world.quiet_for(0);
    world.rest(PauseReason::MaxRunTime);
    assert_eq!(world.status().reason, Some(Reason::MaxRunTime));
}

#[test]
fn who_asks_for_a_pause_takes_it_over() {
    let mut world = lazy();
    world.pass(600);
    world.quiet_for(600);
    world.rest(PauseReason::Idle);
    world.want(DesiredState::Paused);
    world.step();
    assert_eq!(world.status().pause_reason, Some(PauseReason::Requested));
    // From now on no request wakes it, but a resume does.
    world.entry.wake_at = Some(world.now);
    assert_eq!(world.step().actions, []);
    world.want(DesiredState::Running);
    assert_eq!(creates_pod(&world.step()), Some(0));
}

#[test]
fn an_idle_sandbox_expires_like_any_paused_one() {
    let mut world = lazy();
    world.deadlines.delete_paused_after = Some(60 * MINUTE);
    world.pass(600);
    world.quiet_for(600);
    world.rest(PauseReason::Idle);
    world.pass(3600);
    assert_eq!(world.plan().status.phase, Phase::Stopped);
    assert_eq!(world.plan().status.reason, Some(Reason::Expired));
}
