//! Replacement of lost Pods, once the old Pod is certainly gone.

use super::*;

#[test]
fn vanished_pod_is_replaced_at_once() {
    let mut fixture = PlanFixture::running();
    let ready_at = fixture.status().ready_at.clone();
    fixture.facts = Facts::default();
    fixture.advance(3600);
    let plan = fixture.plan_and_apply();
    assert_eq!(creates_pod(&plan), Some(1));
    assert!(plan.pod_lost);
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.reason, Some(Reason::PodReplaced));
    assert_eq!(status.restarts.count, 1);
    assert_eq!(status.restarts.reasons, ["Deleted"]);
    assert_eq!(status.ready_at, ready_at);
    assert_eq!(status.pod_ip, None);
}

#[test]
fn pod_of_lost_node_is_force_deleted() {
    for fact in [
        |pod: &mut PodFacts| pod.phase = PodPhase::Unknown,
        |pod: &mut PodFacts| pod.reason = Some("NodeLost".into()),
    ] {
        let mut fixture = PlanFixture::running();
        fact(fixture.pod());
        assert_eq!(
            deletes_pod(&fixture.plan_and_apply()),
            Some(DeletionGrace::Force)
        );
    }
}

#[test]
fn replacement_waits_for_backoff() {
    let mut fixture = PlanFixture::running();
    fixture.facts = Facts {
        replace_at: Some(fixture.now + SignedDuration::from_secs(8)),
        ..Facts::default()
    };
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.requeue_at, fixture.facts.replace_at);
    assert_eq!(fixture.status().restarts.count, 0);
    fixture.advance(8);
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(1));
}

#[test]
fn three_lost_pods_before_ready_are_a_crash_loop() {
    let mut fixture = PlanFixture::starting();
    for lost in 1..=3 {
        fixture.facts.pod = None;
        let plan = fixture.plan_and_apply();
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
fn lost_pods_after_ready_never_fail_sandbox() {
    let mut fixture = PlanFixture::running();
    let pod = fixture.facts.clone();
    for lost in 1..=9 {
        fixture.facts = Facts::default();
        fixture.advance(1);
        assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(lost));
        fixture.facts = pod.clone();
        fixture.pod().restarts_before = lost;
        assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
    }
}

#[test]
fn node_restarts_do_not_count_as_crashes() {
    let mut fixture = PlanFixture::running();
    for restarts in 1..=9 {
        fixture.advance(5);
        let container = &mut fixture.pod().container;
        container.restarts = restarts;
        container.last_termination = Some("ContainerStatusUnknown".into());
        container.state = ContainerState::Terminated;
        assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
        fixture.pod().container.state = ContainerState::Running { started_at: None };
        assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
    }
}

#[test]
fn unreported_replacement_is_counted_with_reason() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = None;
    fixture.facts.pod = Some(PodFacts {
        uid: "pod-2".into(),
        restarts_before: 1,
        ..pod()
    });
    fixture.plan_and_apply();
    assert_eq!(fixture.status().phase, Phase::Starting);
    assert_eq!(fixture.status().restarts.count, 1);
    assert_eq!(fixture.status().restarts.reasons, ["Deleted"]);
}

#[test]
fn eviction_reason_is_reported() {
    let mut fixture = PlanFixture::running();
    fixture.pod().grace_ends_at = Some(fixture.now);
    fixture.pod().disruption = Some("EvictionByEvictionAPI".into());
    fixture.plan_and_apply();
    let message = fixture.status().message.as_deref();
    assert_eq!(
        message,
        Some("the Pod is being deleted: EvictionByEvictionAPI")
    );
    assert_eq!(fixture.status().restarts.reasons, ["EvictionByEvictionAPI"]);
}

#[test]
fn silent_node_is_noted_while_sandbox_is_ready() {
    for supervised in [true, false] {
        let mut fixture = PlanFixture::running();
        fixture.pod().supervised = supervised;
        fixture.pod().node_silent = true;
        fixture.advance(2);
        fixture.plan_and_apply();
        assert_eq!(fixture.status().phase, Phase::Running);
        let message = fixture.status().message.clone();
        assert!(message.unwrap().ends_with("; the node is not reporting"));
        fixture.pod().node_silent = false;
        fixture.pod().ready = true;
        fixture.plan_and_apply();
        assert!(!fixture.status().message.clone().unwrap().contains("node"));
    }
}

#[test]
fn sandbox_on_silent_node_is_not_ready_without_response() {
    let mut fixture = PlanFixture::running();
    fixture.pod().node_silent = true;
    fixture.facts.readiness = None;
    assert!(fixture.plan_and_apply().probe_readiness);
    assert_eq!(fixture.status().phase, Phase::Running);
    fixture.facts.readiness = Some(ProbeResult::NotReady(Some("no route".into())));
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert!(plan.probe_readiness);
    assert_eq!(fixture.status().phase, Phase::Starting);
    assert_eq!(fixture.status().reason, Some(Reason::NodeNotReady));
    assert_eq!(
        fixture.status().message.as_deref(),
        Some("node node-1 is not reporting and the sandbox does not respond")
    );
    assert_eq!(
        condition(fixture.status(), "Ready").as_deref(),
        Some("False")
    );
    fixture.facts.readiness = Some(ProbeResult::Ready);
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
    assert_eq!(fixture.status().restarts.count, 0);
}
