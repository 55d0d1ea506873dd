//! Facts that end or do not end phase `Running`.

use super::*;
use crds::sandbox::PoolSnapshot;

/// Changes a Pod at the time at which it was ready.
type PodChange = fn(&mut PodFacts, Option<Timestamp>);

#[test]
fn ready_phase_of_other_container_run_is_not_trusted() {
    let other_pod = |pod: &mut PodFacts, _| pod.uid = "pod-2".into();
    let restart_in_the_same_second = |pod: &mut PodFacts, started_at| {
        pod.container.restarts = 1;
        pod.container.state = ContainerState::Running { started_at };
    };
    let changes: [(&str, PodChange); 2] = [
        ("other Pod of the same name", other_pod),
        (
            "restart in the second of readiness",
            restart_in_the_same_second,
        ),
    ];
    for (case, change) in changes {
        let mut fixture = PlanFixture::running();
        fixture.facts.readiness = None;
        let ready_at = fixture.status().ready_at.as_ref().unwrap().0;
        change(fixture.pod(), Some(ready_at));
        assert_eq!(
            fixture.plan_and_apply().status.phase,
            Phase::Starting,
            "{case}"
        );
    }
}

#[test]
fn restarted_controller_ignores_clock_of_kubelet() {
    for ahead in [-3600, -1, 1, 3600] {
        let mut fixture = PlanFixture::running();
        fixture.facts.readiness = None;
        let started_at = fixture.at(ahead);
        fixture.pod().created_at = started_at;
        fixture.pod().container.state = ContainerState::Running { started_at };
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
    let problem = start_problem(StartProblemKind::ImagePull, fixture.now);
    fixture.pod().container.restarts = 7;
    fixture.pod().container.state = ContainerState::BackingOff;
    fixture.pod().start_problem = Some(problem);
    fixture.plan_and_apply();
    assert_eq!(fixture.after(10 * 60).status.phase, Phase::Starting);
}

#[test]
fn crash_loop_window_fails_sandbox_that_was_ready() {
    let mut fixture = PlanFixture::running();
    for restarts in 0..2 {
        fixture.pod().container = terminated(ContainerState::BackingOff, restarts, "exit code 3");
        fixture.facts.readiness = None;
        assert_eq!(
            fixture.after(10).status.phase,
            Phase::Starting,
            "{restarts}"
        );
        fixture.pod().container.state = ContainerState::Running { started_at: None };
        fixture.facts.readiness = Some(ProbeResult::Ready);
        assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
    }
    fixture.pod().container = terminated(ContainerState::BackingOff, 2, "exit code 3");
    fixture.facts.readiness = None;
    fixture.advance(10);
    fixture.reaches(Phase::Failed, Reason::CrashLoop);
}

#[test]
fn pod_is_replaced_when_not_ready_again_within_start_timeout() {
    let mut fixture = PlanFixture::running();
    fixture.facts.readiness = Some(ProbeResult::NotReady(None));
    let plan = fixture.after(100_000);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.requeue_at, fixture.at(15 * 60));
    fixture.advance(15 * 60);
    for _ in 0..3 {
        let plan = fixture.reaches(Phase::Starting, Reason::PodReplaced);
        assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
        fixture.lose_pod();
        assert!(creates_pod(&fixture.plan_and_apply()).is_some());
        fixture.facts.pod = Some(pod());
        fixture.run_container();
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
    let restarts = &fixture.status().restarts;
    assert_eq!((restarts.count, restarts.reasons.len()), (8, 5));
    assert_eq!(restarts.reasons[4], "exit code 8");
}

#[test]
fn restart_gets_the_reason_that_the_kubelet_reports_later() {
    let mut fixture = PlanFixture::running();
    for (restarts, reported, expected) in [
        (1, None, &["Unknown"][..]),
        (1, Some("exit code 3"), &["exit code 3"]),
        (1, Some("exit code 4"), &["exit code 3"]),
        (2, None, &["exit code 3", "Unknown"]),
    ] {
        fixture.pod().container.restarts = restarts;
        fixture.pod().container.last_termination = reported.map(Into::into);
        fixture.plan_and_apply();
        assert_eq!(fixture.status().restarts.reasons, expected);
    }
}

#[test]
fn pool_revision_is_kept_from_first_readiness_on() {
    let snapshot = |name: &str, revision: &str| {
        Some(PoolSnapshot {
            name: name.into(),
            revision: revision.into(),
            ..PoolSnapshot::default()
        })
    };
    let mut fixture = PlanFixture::starting();
    fixture.spec().pool = Some("p".into());
    fixture.facts.pool = snapshot("p", "first").map(Arc::new);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().pool, None, "it follows the pool");
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.facts.pool = snapshot("p", "second").map(Arc::new);
    let kept = fixture.plan_and_apply().status.pool;
    assert_eq!(kept, snapshot("p", "second"));
    for later in [snapshot("p", "third"), None] {
        fixture.facts.pool = later.map(Arc::new);
        assert_eq!(fixture.plan_and_apply().status.pool, kept);
    }
    fixture.spec().pool = Some("q".into());
    fixture.facts.pool = snapshot("q", "first").map(Arc::new);
    assert_eq!(fixture.plan_and_apply().status.pool, snapshot("q", "first"));
}

#[test]
fn outage_never_fails_sandbox_that_was_ready() {
    let outages: [fn(&mut PlanFixture); 5] = [
        |f| f.facts.pod = None,
        |f| (f.facts.quota, f.facts.pod) = (queued(), None),
        |f| f.pod().unschedulable = Some("0/3 nodes are available".into()),
        |f| f.pod().start_problem = Some(start_problem(StartProblemKind::ImagePull, f.now)),
        |f| f.pod().start_problem = Some(start_problem(StartProblemKind::ContainerConfig, f.now)),
    ];
    for resumed in [false, true] {
        for outage in outages {
            let mut fixture = PlanFixture::running();
            if resumed {
                fixture = PlanFixture::paused();
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
            for _ in 0..60 {
                let phase = fixture.after(60).status.phase;
                assert!(
                    matches!(phase, Phase::Starting | Phase::Pending),
                    "{phase:?}"
                );
            }
        }
    }
}
