//! Replacement of lost Pods, once the old Pod is certainly gone.

use super::*;
use crate::facts::{PodIdentity, WarmMatch, WarmSupply};

#[test]
fn vanished_pod_is_replaced_at_once() {
    let mut fixture = PlanFixture::running();
    let ready_at = fixture.status().ready_at.clone();
    fixture.lose_pod();
    fixture.advance(3600);
    let plan = fixture.reaches(Phase::Starting, Reason::PodReplaced);
    assert_eq!(creates_pod(&plan), Some(1));
    assert!(plan.pod_lost);
    let status = plan.status;
    assert_eq!(status.restarts.count, 1);
    assert_eq!(status.restarts.reasons, ["Deleted"]);
    assert_eq!((status.ready_at, status.pod_ip), (ready_at, None));
}

#[test]
fn pod_of_lost_node_is_force_deleted() {
    for fact in [
        |pod: &mut PodFacts| pod.phase = PodPhase::Unknown,
        |pod: &mut PodFacts| pod.reason = Some("NodeLost".into()),
    ] {
        let mut fixture = PlanFixture::running();
        fact(fixture.pod());
        let deleted = deletes_pod(&fixture.plan_and_apply());
        assert_eq!(deleted, Some(DeletionGrace::Force));
    }
}

#[test]
fn pod_of_terminating_sandbox_is_force_deleted_when_its_node_is_dead() {
    let mut fixture = PlanFixture::running();
    fixture.entry.deleting = true;
    fixture.pod().grace_ends_at = Some(fixture.now);
    assert_eq!(fixture.plan_and_apply().actions, []);
    let deletion = Action::DeletePod {
        uid: fixture.pod().uid.clone(),
        grace: DeletionGrace::Force,
    };
    assert_eq!(fixture.after(30).actions, [deletion]);
}

#[test]
fn node_restarts_do_not_count_as_crashes() {
    let mut fixture = PlanFixture::running();
    for restarts in 1..=9 {
        let unknown = "ContainerStatusUnknown";
        fixture.pod().container = terminated(ContainerState::Terminated, restarts, unknown);
        assert_eq!(fixture.after(5).status.phase, Phase::Starting);
        fixture.pod().container.state = ContainerState::Running { started_at: None };
        fixture.reaches(Phase::Running, Reason::Ready);
    }
}

#[test]
fn unreported_replacement_is_counted_with_reason() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = None;
    fixture.pod().uid = "pod-2".into();
    fixture.pod().restarts_before = 1;
    let status = fixture.plan_and_apply().status;
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.restarts.count, 1);
    assert_eq!(status.restarts.reasons, ["Deleted"]);
}

#[test]
fn claimed_pod_that_does_not_answer_is_replaced_by_another_one() {
    let mut fixture = PlanFixture::new();
    let warm = WarmSupply::Ready(WarmMatch {
        pool: "p".into(),
        shape: "s".into(),
    });
    for claims in [true, true, false] {
        fixture.lose_pod();
        fixture.facts.warm = warm.clone();
        let plan = fixture.after(1);
        let claim = |action: &Action| matches!(action, Action::ClaimPod { .. });
        assert_eq!(plan.actions.iter().any(claim), claims, "{:?}", plan.actions);
        if !claims {
            break;
        }
        let mut claimed = pod();
        claimed.identity = Some(PodIdentity::Pod);
        claimed.restarts_before = plan.status.restarts.count;
        fixture.facts.pod = Some(claimed);
        fixture.facts.warm = WarmSupply::None;
        fixture.facts.readiness = Some(ProbeResult::Silent);
        fixture.reaches(Phase::Starting, Reason::PodReplaced);
    }
    // It was ready once: its work is kept.
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = Some(ProbeResult::Silent);
    assert_eq!(fixture.plan_and_apply().actions, []);
}

#[test]
fn eviction_reason_is_reported() {
    let mut fixture = PlanFixture::running();
    fixture.pod().grace_ends_at = Some(fixture.now);
    fixture.pod().disruption = Some("EvictionByEvictionAPI".into());
    let status = fixture.plan_and_apply().status;
    let message = "the Pod is being deleted: EvictionByEvictionAPI";
    assert_eq!(status.message.as_deref(), Some(message));
    assert_eq!(status.restarts.reasons, ["EvictionByEvictionAPI"]);
}

#[test]
fn silent_node_is_noted_while_sandbox_is_ready() {
    for supervised in [true, false] {
        let mut fixture = PlanFixture::running();
        fixture.pod().supervised = supervised;
        fixture.pod().node_silent = true;
        fixture.advance(2);
        let plan = fixture.reaches(Phase::Running, Reason::Ready);
        let message = plan.status.message.unwrap();
        assert!(
            message.ends_with("; the node is not reporting"),
            "{message}"
        );
        fixture.pod().node_silent = false;
        fixture.pod().ready = true;
        let message = fixture.plan_and_apply().status.message.unwrap();
        assert!(!message.contains("node"), "{message}");
    }
}

#[test]
fn sandbox_on_silent_node_is_not_ready_without_response() {
    let mut fixture = PlanFixture::running();
    fixture.pod().node_silent = true;
    fixture.facts.readiness = None;
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert!(plan.probe_readiness);
    fixture.facts.readiness = Some(ProbeResult::NotReady(Some("no route".into())));
    let plan = fixture.reaches(Phase::Starting, Reason::NodeNotReady);
    assert_eq!((plan.actions, plan.probe_readiness), (vec![], true));
    let message = "node node-1 is not reporting and the sandbox does not respond";
    assert_eq!(plan.status.message.as_deref(), Some(message));
    assert_eq!(condition(&plan.status, "Ready").as_deref(), Some("False"));
    fixture.facts.readiness = Some(ProbeResult::Ready);
    let plan = fixture.reaches(Phase::Running, Reason::Ready);
    assert_eq!(plan.status.restarts.count, 0);
}
