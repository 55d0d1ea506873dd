//! Starts: from a new object to a running or failed sandbox.

use super::*;

#[test]
fn new_sandbox_gets_pvc_and_pod() {
    let mut fixture = PlanFixture::new();
    let plan = fixture.plan_and_apply();
    assert_eq!(
        plan.actions,
        [Action::CreateClaim, Action::CreatePod { restarts: 0 }]
    );
    assert!(
        !plan.write_status,
        "the first status of a start is not written"
    );
    let status = &plan.status;
    assert_eq!(status.phase, Phase::Starting);
    assert_eq!(status.reason, Some(Reason::CreatingPod));
    assert_eq!(status.pod_status, Some(PodStatus::Pending));
    assert_eq!(status.runtime_id.as_deref(), Some("abcdefghijklmnop"));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(condition(status, "Ready").as_deref(), Some("False"));
}

#[test]
fn slow_start_reports_waiting_reason_after_detail_delay() {
    let mut fixture = PlanFixture::new();
    fixture.plan_and_apply();
    fixture.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    });
    fixture.advance(4);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().reason, Some(Reason::CreatingPod));
    let written = fixture.status().clone();

    fixture.facts.pod = Some(pod());
    let started_at = Some(fixture.now);
    fixture.pod().container.state = ContainerState::Running { started_at };
    fixture.advance(2);
    let plan = fixture.plan_and_apply();
    assert_eq!(*fixture.status(), written);
    assert!(
        plan.requeue_at
            .is_some_and(|next| next <= fixture.now + SignedDuration::from_secs(1))
    );
    fixture.advance(1);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().reason, Some(Reason::Initializing));
}

#[test]
fn sandbox_without_workspace_gets_no_pvc_and_a_note() {
    let mut fixture = PlanFixture::new();
    fixture.spec().workspace = None;
    assert_eq!(
        fixture.plan_and_apply().actions,
        [Action::CreatePod { restarts: 0 }]
    );
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.plan_and_apply();
    assert!(
        fixture
            .status()
            .message
            .as_ref()
            .unwrap()
            .contains("lost on pause")
    );
}

#[test]
fn quick_start_writes_status_once() {
    let mut fixture = PlanFixture::new();
    let mut written = 0;
    let mut step = |fixture: &mut PlanFixture| {
        let before = fixture.entry.status.clone();
        fixture.plan_and_apply();
        written += u32::from(fixture.entry.status != before);
    };
    step(&mut fixture);
    fixture.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        ip: None,
        node: None,
        container: Container::default(),
        ..pod()
    });
    step(&mut fixture);
    fixture.pod().unschedulable = Some("volume not bound yet".into());
    step(&mut fixture);
    fixture.pod().unschedulable = None;
    fixture.pod().ip = pod().ip;
    fixture.pod().node = pod().node;
    step(&mut fixture);
    fixture.facts.pod = Some(pod());
    step(&mut fixture);
    fixture.facts.readiness = Some(ProbeResult::NotReady(None));
    step(&mut fixture);
    fixture.advance(1);
    fixture.facts.readiness = Some(ProbeResult::Ready);
    step(&mut fixture);
    assert_eq!(fixture.status().phase, Phase::Running);
    assert_eq!(written, 1);
}

#[test]
fn supervisor_readiness_overrides_kubelet() {
    let mut fixture = PlanFixture::new();
    fixture.plan_and_apply();
    fixture.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    });
    fixture.facts.readiness = Some(ProbeResult::Ready);
    fixture.plan_and_apply();
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(status.pod_status, Some(PodStatus::Ready));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.node_name.as_deref(), Some("node-1"));
    assert!(status.ready_at.is_some());
    assert_eq!(condition(status, "Ready").as_deref(), Some("True"));
}

#[test]
fn sandbox_is_not_ready_without_supervisor_report() {
    let mut fixture = PlanFixture::new();
    fixture.plan_and_apply();
    fixture.facts.pod = Some(PodFacts {
        ready: true,
        ..pod()
    });
    fixture.advance(10);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().phase, Phase::Starting);
    assert_eq!(fixture.status().reason, Some(Reason::Initializing));
    assert_eq!(fixture.status().pod_status, Some(PodStatus::Running));
}

#[test]
fn unsupervised_sandbox_is_ready_with_its_pod() {
    let mut fixture = PlanFixture::new();
    fixture.plan_and_apply();
    fixture.facts.pod = Some(PodFacts {
        supervised: false,
        ..pod()
    });
    let plan = fixture.plan_and_apply();
    assert!(!plan.probe_readiness);
    assert_eq!(plan.status.phase, Phase::Starting);
    fixture.pod().ready = true;
    let plan = fixture.plan_and_apply();
    assert_eq!(
        plan.status.phase,
        Phase::Starting,
        "it may still terminate at once"
    );
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_secs(2))
    );
    fixture.advance(2);
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
    // The clock of its node is far ahead.
    let started_at = Some(fixture.now + SignedDuration::from_hours(1));
    fixture.pod().container.state = ContainerState::Running { started_at };
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Running);
}

#[test]
fn ready_message_states_its_basis() {
    for (supervised, port, path, basis) in [
        (true, Some(1), Some("/alive"), "port 1 answers GET /alive"),
        (true, Some(1), None, "port 1 accepts connections"),
        (
            true,
            None,
            None,
            "the command has run for 2 s; it has no port",
        ),
        (
            false,
            Some(1),
            None,
            "the Pod is Ready and port 1 accepts connections",
        ),
        (
            false,
            None,
            None,
            "the Pod is Ready and has run for 2 s; it has no port",
        ),
    ] {
        let mut fixture = PlanFixture::running();
        fixture.advance(2);
        fixture.pod().supervised = supervised;
        fixture.pod().ready = true;
        fixture.probe = Probe {
            port,
            path: path.map(str::to_owned),
        };
        let message = fixture.plan_and_apply().status.message;
        assert_eq!(message.as_deref(), Some(basis));
    }
}

#[test]
fn pod_of_unreported_start_is_adopted() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(pod());
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.restarts.count, 0);
}

#[test]
fn start_fails_after_start_timeout() {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(pod());
    fixture.advance(10);
    fixture.plan_and_apply();
    let plan = fixture.plan_and_apply();
    assert_eq!(
        plan.requeue_at,
        Some(fixture.now + SignedDuration::from_secs(15 * 60 - 10))
    );
    fixture.advance(15 * 60);
    fixture.plan_and_apply();
    let status = fixture.status();
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(status.reason, Some(Reason::StartTimeout));
    assert_eq!(status.pod_status, Some(PodStatus::Failed));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(status, "Failed").as_deref(), Some("True"));
    assert_eq!(
        deletes_pod(&fixture.plan_and_apply()),
        Some(DeletionGrace::PodDefault)
    );
}

#[test]
fn start_never_times_out_without_start_timeout() {
    let mut fixture = PlanFixture::starting();
    fixture.deadlines.start_timeout = None;
    fixture.plan_and_apply();
    fixture.facts.pod = Some(pod());
    fixture.advance(1_000_000);
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
}

#[test]
fn three_crashes_before_ready_are_a_crash_loop() {
    let mut fixture = PlanFixture::new();
    fixture.plan_and_apply();
    for ends in 1..=3 {
        fixture.facts.pod = Some(PodFacts {
            container: Container {
                state: ContainerState::BackingOff,
                restarts: ends - 1,
                last_termination: Some("exit code 1".into()),
                termination_message: Some("cannot start bash".into()),
            },
            ..pod()
        });
        fixture.advance(20);
        let plan = fixture.plan_and_apply();
        if ends < 3 {
            assert_eq!(plan.status.phase, Phase::Starting, "{ends}");
            assert_eq!(plan.status.pod_status, Some(PodStatus::Pending));
            assert!(!plan.probe_readiness);
        } else {
            assert_eq!(plan.status.phase, Phase::Failed);
            assert_eq!(plan.status.reason, Some(Reason::CrashLoop));
            assert_eq!(plan.status.pod_status, Some(PodStatus::CrashLoopBackOff));
            assert_eq!(plan.status.restarts.reasons, ["exit code 1", "exit code 1"]);
            let message =
                "the command terminated 3 times; last termination: exit code 1: cannot start bash";
            assert_eq!(plan.status.message.as_deref(), Some(message));
            assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
        }
    }
}

#[test]
fn failed_sandbox_starts_again_once_per_wake() {
    let rejection = ActionRejection {
        reason: Reason::InvalidSpec,
        message: "spec.podTemplate: x".into(),
        is_terminal: true,
    };
    let mut fixture = PlanFixture::new();
    fixture.entry.status = fixture.status_after_rejection(&rejection);
    fixture.entry.wake_at = Some(fixture.now);
    fixture.advance(10);
    assert_eq!(
        fixture.plan_and_apply().actions,
        [],
        "the wake is not newer than the start"
    );
    fixture.entry.wake_at = Some(fixture.now + SignedDuration::from_secs(5));
    let plan = fixture.plan_and_apply();
    assert_eq!(
        (plan.actions, plan.requeue_at),
        (vec![], fixture.entry.wake_at)
    );
    fixture.advance(5);
    assert!(creates_pod(&fixture.plan()).is_some());
    fixture.entry.status = fixture.status_after_rejection(&rejection);
    assert_eq!(fixture.status().phase, Phase::Failed);
    assert_eq!(fixture.plan_and_apply().actions, [], "one start per wake");
}

#[test]
fn pod_of_failed_start_is_not_adopted_by_next_start() {
    let mut fixture = PlanFixture::new();
    fixture.entry.status.phase = Phase::Failed;
    fixture.entry.status.observed_generation = Some(0);
    fixture.facts.pod = Some(pod());
    let plan = fixture.plan();
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    assert_eq!(plan.status.pod_name, None);
}

#[test]
fn terminal_rejection_fails_and_other_rejections_retry() {
    let fixture = PlanFixture::new();
    let mut rejection = ActionRejection {
        reason: Reason::InvalidSpec,
        message: "spec.podTemplate: x".into(),
        is_terminal: true,
    };
    let status = fixture.status_after_rejection(&rejection);
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Failed, Some(Reason::InvalidSpec))
    );
    rejection.is_terminal = false;
    rejection.reason = Reason::NameTaken;
    let status = fixture.status_after_rejection(&rejection);
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Pending, Some(Reason::NameTaken))
    );
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
}

#[test]
fn repeatedly_rejected_start_times_out() {
    let mut fixture = PlanFixture::new();
    let rejection = ActionRejection {
        reason: Reason::NameTaken,
        message: "taken".into(),
        is_terminal: false,
    };
    let mut phases = Vec::new();
    for _ in 0..3 {
        let plan = fixture.plan();
        fixture.entry.status = if plan.actions.is_empty() {
            plan.status
        } else {
            fixture.status_after_rejection(&rejection)
        };
        phases.push(fixture.status().phase);
        fixture.advance(10 * 60);
    }
    assert_eq!(phases, [Phase::Pending, Phase::Pending, Phase::Failed]);
}

#[test]
fn missing_secret_is_tolerated_until_start_timeout() {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(pod());
    fixture.pod().container.state = ContainerState::Waiting;
    fixture.pod().start_problem = Some(start_problem(
        StartProblemKind::MissingReference,
        fixture.now,
    ));
    for minutes in [0, 3, 11] {
        fixture.advance(minutes * 60);
        fixture.plan_and_apply();
        assert_eq!(fixture.status().phase, Phase::Starting);
        assert_eq!(
            fixture.status().reason,
            Some(Reason::CreateContainerConfigError)
        );
    }
    fixture.advance(60);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().reason, Some(Reason::StartTimeout));
}

#[test]
fn failed_sandbox_restarts_when_pool_template_changes() {
    let rejection = ActionRejection {
        reason: Reason::InvalidSpec,
        message: "spec.podTemplate: x".into(),
        is_terminal: true,
    };
    let mut fixture = PlanFixture::new();
    fixture.spec().pool = Some("p".into());
    for revision in ["first", "second"] {
        fixture.facts.pool_revision = Some(revision.into());
        assert!(creates_pod(&fixture.plan()).is_some());
        fixture.entry.status = fixture.status_after_rejection(&rejection);
        assert_eq!(fixture.status().phase, Phase::Failed);
        assert_eq!(fixture.plan_and_apply().actions, []);
        assert_eq!(fixture.status().pool_revision.as_deref(), Some(revision));
    }
    // A missing pool is not a changed template.
    fixture.facts.pool_revision = None;
    fixture.facts.pool_missing = true;
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Failed);
    fixture.facts.pool_missing = false;
    fixture.facts.pool_revision = Some("third".into());
    fixture.plan_and_apply();
    assert_eq!(fixture.status().phase, Phase::Starting);
    assert_eq!(fixture.status().pool_revision, None);
}

#[test]
fn pods_lost_before_first_status_count_and_back_off() {
    let mut fixture = PlanFixture::new();
    let plan = fixture.plan_and_apply();
    assert!(creates_pod(&plan) == Some(0) && !plan.write_status);
    fixture.facts.had_lost_pod = true;
    let plan = fixture.plan_and_apply();
    assert_eq!(creates_pod(&plan), Some(1));
    assert!(plan.write_status && plan.pod_lost);
    assert_eq!(fixture.status().restarts.reasons, ["Deleted"]);
    fixture.facts.replace_at = Some(fixture.now + SignedDuration::from_secs(1));
    assert_eq!(creates_pod(&fixture.plan_and_apply()), None);
    fixture.facts.replace_at = None;
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(2));
    assert_eq!(
        fixture.plan_and_apply().status.reason,
        Some(Reason::CrashLoop)
    );
}

#[test]
fn restarted_controller_keeps_status_of_slow_start() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::NotReady(Some("port 8000 is closed".into())));
    fixture.advance(60);
    fixture.plan_and_apply();
    assert_eq!(fixture.status().reason, Some(Reason::WaitingForCommand));
    let before = fixture.status().clone();
    fixture.facts.readiness = None;
    fixture.advance(60);
    let plan = fixture.plan_and_apply();
    assert!(plan.probe_readiness);
    assert_eq!(*fixture.status(), before);
}
