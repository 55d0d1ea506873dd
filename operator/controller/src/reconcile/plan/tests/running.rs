//! Facts that end or do not end phase `Running`.

use super::*;
use crate::facts::QuotaDecision;
use crds::sandbox::PoolSnapshot;

#[test]
fn container_restart_is_detected_by_restarted_controller() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = None;
    fixture.advance(60);
    let now = fixture.now;
    fixture.pod().container = Container {
        state: ContainerState::Running {
            started_at: Some(now),
        },
        restarts: 1,
        last_termination: Some("OOMKilled".into()),
        termination_message: None,
    };
    let plan = fixture.plan_and_apply();
    assert!(plan.probe_readiness);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.reason, Some(Reason::Restarting));
    assert_eq!(plan.status.restarts.count, 1);
    assert_eq!(plan.status.restarts.reasons, ["OOMKilled"]);
    assert!(plan.status.ready_at.is_some());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().phase, Phase::Running);
    assert_eq!(fixture.status().restarts.count, 1);
}

#[test]
fn other_pod_of_same_name_is_not_ready() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = None;
    fixture.pod().uid = "pod-2".into();
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
}

#[test]
fn restarted_controller_ignores_clock_of_kubelet() {
    for ahead in [-3600, -1, 1, 3600] {
        let mut fixture = PlanFixture::running();
        fixture.facts.readiness = None;
        let at = Some(fixture.now + SignedDuration::from_secs(ahead));
        fixture.pod().created_at = at;
        fixture.pod().container.state = ContainerState::Running { started_at: at };
        assert_eq!(
            fixture.plan_and_apply().status.phase,
            Phase::Running,
            "{ahead}"
        );
    }
}

#[test]
fn ready_sandbox_is_not_failed_by_crashes_or_pull_errors() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = None;
    fixture.advance(3 * 60);
    let now = fixture.now;
    fixture.pod().container.restarts = 7;
    fixture.pod().container.state = ContainerState::BackingOff;
    fixture.pod().start_problem = Some(start_problem(StartProblemKind::ImagePull, now));
    fixture.plan_and_apply();
    fixture.advance(10 * 60);
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
}

#[test]
fn crash_loop_window_fails_sandbox_that_was_ready() {
    let mut fixture = PlanFixture::running();
    for restarts in 0..3 {
        fixture.advance(10);
        fixture.pod().container = Container {
            state: ContainerState::BackingOff,
            restarts,
            last_termination: Some("exit code 3".into()),
            termination_message: None,
        };
        fixture.facts.readiness = None;
        fixture.plan_and_apply();
        let over = fixture.status().phase == Phase::Failed;
        assert_eq!(over, restarts == 2);
        if !over {
            fixture.pod().container.state = ContainerState::Running { started_at: None };
            fixture.facts.readiness = Some(ProbeResult::Ready);
            assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
        }
    }
    assert_eq!(fixture.status().reason, Some(Reason::CrashLoop));
}

#[test]
fn pod_is_replaced_when_not_ready_again_within_start_timeout() {
    let mut fixture = PlanFixture::running();
    fixture.advance(100_000);
    fixture.facts.readiness = Some(ProbeResult::NotReady(None));
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_mins(15))
    );
    fixture.advance(15 * 60);
    for _ in 0..3 {
        let plan = fixture.plan_and_apply();
        assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
        assert_eq!(plan.status.reason, Some(Reason::PodReplaced));
        fixture.facts = Facts::default();
        assert!(creates_pod(&fixture.plan_and_apply()).is_some());
        let started_at = Some(fixture.now);
        fixture.facts.pod = Some(pod());
        fixture.pod().container.state = ContainerState::Running { started_at };
        fixture.facts.readiness = Some(ProbeResult::NotReady(None));
        let plan = fixture.plan_and_apply();
        assert_eq!(plan.actions, [], "the new Pod has its own startTimeout");
        fixture.advance(15 * 60);
    }
    assert_eq!(fixture.status().restarts.count, 3);
    assert_eq!(fixture.status().restarts.reasons, ["StartTimeout"]);
}

#[test]
fn status_keeps_latest_restart_reasons_only() {
    let mut fixture = PlanFixture::running();
    for restarts in 1..=8 {
        fixture.pod().container.restarts = restarts;
        fixture.pod().container.last_termination = Some(format!("exit code {restarts}"));
        fixture.plan_and_apply();
    }
    assert_eq!(fixture.status().restarts.count, 8);
    let reasons = &fixture.status().restarts.reasons;
    assert_eq!(reasons.len(), 5);
    assert_eq!(reasons[4], "exit code 8");
}

#[test]
fn restart_in_the_same_second_as_ready_is_detected() {
    let mut fixture = PlanFixture::running();
    let second = fixture.status().ready_at.as_ref().unwrap().0;
    fixture.facts.readiness = None;
    fixture.pod().container.restarts = 1;
    fixture.pod().container.state = ContainerState::Running {
        started_at: Some(second),
    };
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
}

#[test]
fn pool_revision_is_kept_from_first_readiness_on() {
    let snapshot = |name: &str, revision: &str| {
        Some(Arc::new(PoolSnapshot {
            name: name.into(),
            revision: revision.into(),
            ..PoolSnapshot::default()
        }))
    };
    let mut fixture = PlanFixture::starting();
    fixture.spec().pool = Some("p".into());
    fixture.facts.pool = snapshot("p", "first");
    fixture.plan_and_apply();
    assert_eq!(fixture.status().pool, None, "it follows the pool");
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.facts.pool = snapshot("p", "second");
    fixture.plan_and_apply();
    let kept = fixture.status().pool.clone().unwrap();
    assert_eq!(
        (kept.name.as_str(), kept.revision.as_str()),
        ("p", "second")
    );
    for later in [snapshot("p", "third"), None] {
        fixture.facts.pool = later;
        fixture.plan_and_apply();
        assert_eq!(fixture.status().pool.as_ref(), Some(&kept));
    }
    fixture.spec().pool = Some("q".into());
    fixture.facts.pool = snapshot("q", "first");
    fixture.plan_and_apply();
    assert_eq!(fixture.status().pool.as_ref().unwrap().name, "q");
}

#[test]
fn outage_never_fails_sandbox_that_was_ready() {
    let outages: [fn(&mut PlanFixture); 5] = [
        |f| f.facts.pod = None,
        |f| f.facts.quota = QuotaDecision::Queued("waiting for quota".into()),
        |f| f.pod().unschedulable = Some("0/3 nodes are available".into()),
        |f| f.pod().start_problem = Some(start_problem(StartProblemKind::ImagePull, f.now)),
        |f| f.pod().start_problem = Some(start_problem(StartProblemKind::ContainerConfig, f.now)),
    ];
    for resumed in [false, true] {
        for outage in outages {
            let mut fixture = PlanFixture::running();
            if resumed {
                fixture.set_desired_state(DesiredState::Paused);
                fixture.facts = Facts::default();
                fixture.plan_and_apply();
                fixture.advance(60);
                fixture.set_desired_state(DesiredState::Running);
                fixture.plan_and_apply();
            }
            fixture.facts.readiness = None;
            fixture.facts.pod = Some(PodFacts {
                container: Container::default(),
                ..pod()
            });
            outage(&mut fixture);
            if matches!(fixture.facts.quota, QuotaDecision::Queued(_)) {
                fixture.facts.pod = None;
            }
            for _ in 0..60 {
                fixture.advance(60);
                let phase = fixture.plan_and_apply().status.phase;
                assert!(
                    matches!(phase, Phase::Starting | Phase::Pending),
                    "{phase:?}"
                );
            }
        }
    }
}
