//! Pods that are lost are replaced, once the old one is certainly gone.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus};

use super::*;

#[test]
fn a_vanished_pod_is_replaced_at_once() {
    let mut world = World::running();
    let ready_at = world.status().ready_at.clone();
    world.facts = Facts::default();
    world.pass(3600);
    let plan = world.step();
    assert_eq!(creates_pod(&plan), Some(1));
    assert!(plan.lost);
    let status = world.status();
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.reason, Some(Reason::PodReplaced));
    assert_eq!(status.restarts.count, 1);
    assert_eq!(status.restarts.reasons, ["Deleted"]);
    assert_eq!(status.ready_at, ready_at);
    assert_eq!(status.pod_ip, None);
}

#[test]
fn the_replacement_starts_like_any_pod() {
    let mut world = World::running();
    world.facts = Facts::default();
    world.pass(3600);
    world.step();
    world.facts.pod = Some(PodFacts {
        uid: "pod-2".into(),
        restarts_before: 1,
        ..pod()
    });
    world.step();
    assert_eq!(world.status().reason, Some(Reason::PodReplaced));
    world.facts.answer = Some(Answer::Ready);
    world.step();
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!(world.status().restarts.count, 1);
}

#[test]
fn an_evicted_pod_is_removed_then_replaced() {
    let mut world = World::running();
    world.pod().phase = PodPhase::Failed;
    world.pod().reason = Some("Evicted".into());
    world.pod().message = Some("low on memory".into());
    let plan = world.step();
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.pod_status, Some(PodStatus::Pending));
    assert!(
        plan.status
            .message
            .as_ref()
            .unwrap()
            .contains("low on memory")
    );
    world.facts = Facts::default();
    assert_eq!(creates_pod(&world.step()), Some(1));
    assert_eq!(world.status().restarts.reasons, ["Evicted"]);
}

#[test]
fn a_pod_that_ended_is_replaced() {
    let mut world = World::running();
    world.pod().phase = PodPhase::Succeeded;
    let plan = world.step();
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert_eq!(plan.status.restarts.reasons, ["Completed"]);
}

#[test]
fn a_pod_of_a_lost_node_is_not_waited_for() {
    for fact in [
        |pod: &mut PodFacts| pod.phase = PodPhase::Unknown,
        |pod: &mut PodFacts| pod.reason = Some("NodeLost".into()),
    ] {
        let mut world = World::running();
        fact(world.pod());
        assert_eq!(deletes_pod(&world.step()), Some(Grace::None));
    }
}

#[test]
fn a_pod_deleted_by_hand_must_be_gone_before_there_is_another() {
    let mut world = World::running();
    let ends = world.now + SignedDuration::from_secs(10);
    world.pod().deletion = Some(ends);
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert!(!plan.asks);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.reason, Some(Reason::PodReplaced));
    assert_eq!(plan.next, Some(ends + SignedDuration::from_secs(30)));
    world.facts = Facts::default();
    let plan = world.step();
    assert_eq!(creates_pod(&plan), Some(1));
    assert_eq!(plan.status.restarts.reasons, ["Deleted"]);
}

#[test]
fn a_pod_that_does_not_go_is_removed_by_force() {
    let mut world = World::running();
    let ends = world.now;
    world.pod().deletion = Some(ends);
    world.step();
    world.pass(30);
    assert_eq!(deletes_pod(&world.step()), Some(Grace::None));
}

#[test]
fn repeated_losses_are_replaced_more_slowly() {
    let mut world = World::running();
    world.facts = Facts {
        replace_at: Some(world.now + SignedDuration::from_secs(8)),
        ..Facts::default()
    };
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.next, world.facts.replace_at);
    assert_eq!(world.status().restarts.count, 0);
    world.pass(8);
    assert_eq!(creates_pod(&world.step()), Some(1));
}

#[test]
fn three_pods_lost_before_readiness_are_a_crash_loop() {
    let mut world = World::starting();
    for lost in 1..=3 {
        world.facts.pod = None;
        let plan = world.step();
        if lost < 3 {
            assert_eq!(creates_pod(&plan), Some(lost));
        } else {
            assert_eq!(plan.actions, []);
            assert_eq!(plan.status.phase, Phase::Failed);
            assert_eq!(plan.status.reason, Some(Reason::CrashLoop));
        }
    }
}

#[test]
fn losses_after_readiness_never_end_in_failure() {
    let mut world = World::running();
    let pod = world.facts.clone();
    for lost in 1..=9 {
        world.facts = Facts::default();
        world.pass(1);
        assert_eq!(creates_pod(&world.step()), Some(lost));
        world.facts = pod.clone();
        world.pod().restarts_before = lost;
        assert_eq!(world.step().status.phase, Phase::Running);
    }
}

#[test]
fn restarts_of_the_node_are_no_crashes_of_the_command() {
    let mut world = World::running();
    for restarts in 1..=9 {
        world.pass(5);
        let container = &mut world.pod().container;
        container.restarts = restarts;
        container.last_end = Some("ContainerStatusUnknown".into());
        container.state = ContainerState::Ended;
        assert_eq!(world.step().status.phase, Phase::Starting);
        world.pod().container.state = ContainerState::Running { started_at: None };
        assert_eq!(world.step().status.phase, Phase::Running);
    }
}

#[test]
fn a_replacement_whose_making_was_never_reported_is_counted_with_a_reason() {
    let mut world = World::running();
    world.facts.answer = None;
    world.facts.pod = Some(PodFacts {
        uid: "pod-2".into(),
        restarts_before: 1,
        ..pod()
    });
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().restarts.count, 1);
    assert_eq!(world.status().restarts.reasons, ["Deleted"]);
}

#[test]
fn a_pod_that_is_evicted_says_by_whom() {
    let mut world = World::running();
    world.pod().deletion = Some(world.now);
    world.pod().disruption = Some("EvictionByEvictionAPI".into());
    world.step();
    let message = world.status().message.as_deref();
    assert_eq!(
        message,
        Some("the Pod is being deleted: EvictionByEvictionAPI")
    );
    assert_eq!(world.status().restarts.reasons, ["EvictionByEvictionAPI"]);
}

#[test]
fn a_silent_node_is_mentioned_while_the_sandbox_answers() {
    for supervised in [true, false] {
        let mut world = World::running();
        world.pod().supervised = supervised;
        world.pod().silent = true;
        world.step();
        assert_eq!(world.status().phase, Phase::Running);
        let said = world.status().message.clone();
        assert_eq!(said.as_deref(), Some("its node has stopped reporting"));
        world.pod().silent = false;
        world.pod().ready = true;
        world.step();
        assert_eq!(world.status().message, None);
    }
}

#[test]
fn a_sandbox_that_fell_silent_with_its_node_is_not_ready() {
    let mut world = World::running();
    world.pod().silent = true;
    world.facts.answer = None;
    assert!(world.step().asks);
    assert_eq!(world.status().phase, Phase::Running);
    world.facts.answer = Some(Answer::NotReady(Some("no route".into())));
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert!(plan.asks);
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().reason, Some(Reason::NodeNotReady));
    assert_eq!(
        world.status().message.as_deref(),
        Some("node node-1 has stopped reporting, and the sandbox does not answer")
    );
    assert_eq!(condition(world.status(), "Ready").as_deref(), Some("False"));
    world.facts.answer = Some(Answer::Ready);
    assert_eq!(world.step().status.phase, Phase::Running);
    assert_eq!(world.status().restarts.count, 0);
}
