//! A sandbox that runs: what changes that, and what does not.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus};

use super::*;

#[test]
fn nothing_new_is_nothing_to_do() {
    let mut world = World::running();
    let before = world.status().clone();
    world.pass(100_000);
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.next, None);
    assert_eq!(*world.status(), before);
}

#[test]
fn a_restarted_controller_leaves_what_runs_alone() {
    let mut world = World::running();
    world.facts.answer = None;
    world.pass(3600);
    let plan = world.step();
    assert!(plan.asks);
    assert_eq!(plan.status.phase, Phase::Running);
}

#[test]
fn the_contrary_word_of_the_supervisor_counts() {
    let mut world = World::running();
    let ready_at = world.status().ready_at.clone();
    world.facts.answer = Some(Answer::NotReady(Some("starting".into())));
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().ready_at, ready_at);
    assert_eq!(condition(world.status(), "Ready").as_deref(), Some("False"));
}

#[test]
fn a_container_restart_is_seen_even_by_a_restarted_controller() {
    let mut world = World::running();
    world.facts.answer = None;
    world.pass(60);
    let now = world.now;
    world.pod().container = Container {
        state: ContainerState::Running {
            started_at: Some(now),
        },
        restarts: 1,
        last_end: Some("OOMKilled".into()),
        last_words: None,
    };
    let plan = world.step();
    assert!(plan.asks);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.reason, Some(Reason::Restarting));
    assert_eq!(plan.status.restarts.count, 1);
    assert_eq!(plan.status.restarts.reasons, ["OOMKilled"]);
    assert!(plan.status.ready_at.is_some());
    world.facts.answer = Some(Answer::Ready);
    world.step();
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!(world.status().restarts.count, 1);
}

#[test]
fn another_pod_of_the_same_name_is_not_taken_for_ready() {
    let mut world = World::running();
    world.facts.answer = None;
    world.pod().ip = Some("10.0.0.2".into());
    assert_eq!(world.step().status.phase, Phase::Starting);
    let mut world = World::running();
    world.facts.answer = None;
    world.pass(100);
    let now = world.now;
    world.pod().created_at = Some(now);
    assert_eq!(world.step().status.phase, Phase::Starting);
}

#[test]
fn a_container_that_ended_is_not_ready() {
    let mut world = World::running();
    world.pod().container.state = ContainerState::Ended;
    world.pod().container.last_end = Some("exit code 3".into());
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().reason, Some(Reason::Restarting));
    assert_eq!(world.status().pod_status, Some(PodStatus::Pending));
}

#[test]
fn what_was_ready_once_is_not_given_up_for_crashes_or_pulls() {
    let mut world = World::running();
    world.facts.answer = None;
    world.pass(3 * 60);
    let now = world.now;
    world.pod().container.restarts = 7;
    world.pod().container.state = ContainerState::BackingOff;
    world.pod().trouble = Some(trouble(TroubleKind::ImagePull, now));
    world.step();
    world.pass(10 * 60);
    assert_eq!(world.step().status.phase, Phase::Starting);
}

#[test]
fn a_command_that_keeps_ending_at_once_is_a_crash_loop_though_it_was_ready() {
    let mut world = World::running();
    for restarts in 0..3 {
        world.pass(10);
        world.pod().container = Container {
            state: ContainerState::BackingOff,
            restarts,
            last_end: Some("exit code 3".into()),
            last_words: None,
        };
        world.facts.answer = None;
        world.step();
        let over = world.status().phase == Phase::Failed;
        assert_eq!(over, restarts == 2);
        if !over {
            world.pod().container.state = ContainerState::Running { started_at: None };
            world.facts.answer = Some(Answer::Ready);
            assert_eq!(world.step().status.phase, Phase::Running);
        }
    }
    assert_eq!(world.status().reason, Some(Reason::CrashLoop));
}

#[test]
fn it_is_given_up_if_it_does_not_come_back_in_time() {
    let mut world = World::running();
    world.pass(100_000);
    world.facts.answer = Some(Answer::NotReady(None));
    let plan = world.step();
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_mins(15)));
    world.pass(15 * 60);
    assert_eq!(world.step().status.reason, Some(Reason::StartTimeout));
}

#[test]
fn only_the_latest_reasons_of_restarts_are_kept() {
    let mut world = World::running();
    for restarts in 1..=8 {
        world.pod().container.restarts = restarts;
        world.pod().container.last_end = Some(format!("exit code {restarts}"));
        world.step();
    }
    assert_eq!(world.status().restarts.count, 8);
    let reasons = &world.status().restarts.reasons;
    assert_eq!(reasons.len(), 5);
    assert_eq!(reasons[4], "exit code 8");
}

#[test]
fn a_restart_within_the_second_of_readiness_is_seen() {
    let mut world = World::running();
    let second = world.status().ready_at.as_ref().unwrap().0;
    world.facts.answer = None;
    world.pod().container.restarts = 1;
    world.pod().container.state = ContainerState::Running {
        started_at: Some(second),
    };
    assert_eq!(world.step().status.phase, Phase::Starting);
}
