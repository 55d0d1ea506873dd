//! Starts: from a new object to a running or failed sandbox.

use super::*;

#[test]
fn new_sandbox_gets_pvc_and_pod() {
    let mut fixture = PlanFixture::new();
    let plan = fixture.reaches(Phase::Starting, Reason::CreatingPod);
    let start = Action::CreatePod { restarts: 0 };
    assert_eq!(plan.actions, [Action::CreateClaim, start]);
    assert!(!plan.write_status, "the first status is not written");
    let status = &plan.status;
    assert_eq!(status.pod_status, Some(PodStatus::Pending));
    assert_eq!(status.runtime_id.as_deref(), Some("abcdefghijklmnop"));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(condition(status, "Ready").as_deref(), Some("False"));
}

#[test]
fn slow_start_reports_waiting_reason_after_detail_delay() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(waiting_pod());
    fixture.advance(4);
    fixture.reaches(Phase::Starting, Reason::CreatingPod);
    let written = fixture.status().clone();

    fixture.facts.pod = Some(pod());
    fixture.run_container();
    let plan = fixture.after(2);
    assert_eq!(*fixture.status(), written);
    let next = plan.requeue_at;
    assert!(next.is_some() && next <= fixture.at(1), "{next:?}");
    fixture.advance(1);
    fixture.reaches(Phase::Starting, Reason::Initializing);
}

#[test]
fn detail_delay_grows_with_the_number_of_starts() {
    let cases = [(1, 3), (20, 10), (500, 120)];
    for (starts, delay) in cases {
        let mut fixture = PlanFixture::new();
        fixture.facts.starts_in_progress = starts;
        fixture.facts.pod = Some(waiting_pod());
        let early = fixture.after(delay - 1);
        assert!(!early.write_status, "{starts}");
        assert_eq!(early.requeue_at, fixture.at(1), "{starts}");
        assert!(fixture.after(1).write_status, "{starts}");
    }
}

#[test]
fn progress_of_a_pull_is_written_once_per_detail_delay() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(waiting_pod());
    fixture.facts.starts_in_progress = 20;
    let mut written = Vec::new();
    for second in 1..=35 {
        fixture.pod().preparation = Some(format!("{second} of 99 MB"));
        let before = fixture.status().message.clone();
        fixture.after(1);
        if fixture.status().message != before {
            written.extend(fixture.status().message.clone());
            fixture.facts.message_written_at = Some(fixture.now);
        }
    }
    assert_eq!(written, ["10 of 99 MB", "20 of 99 MB", "30 of 99 MB"]);
    // The last report is written although the Pod does not change any more.
    assert_eq!(fixture.plan().requeue_at, fixture.at(5));
    fixture.advance(5);
    let last = fixture.reaches(Phase::Starting, Reason::CreatingPod);
    assert_eq!(last.status.message.as_deref(), Some("35 of 99 MB"));
    // Other reasons do not wait.
    fixture.facts.message_written_at = Some(fixture.now);
    let problem = start_problem(StartProblemKind::ImagePull, fixture.now);
    fixture.pod().start_problem = Some(problem);
    fixture.reaches(Phase::Starting, Reason::ImagePullBackOff);
}

#[test]
fn sandbox_without_workspace_gets_no_pvc_and_a_note() {
    let mut fixture = PlanFixture::new();
    fixture.spec().workspace = None;
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.actions, [Action::CreatePod { restarts: 0 }]);
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    let message = fixture.plan_and_apply().status.message.unwrap();
    assert!(message.contains("lost on pause"), "{message}");
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
        ip: None,
        node: None,
        ..waiting_pod()
    });
    step(&mut fixture);
    fixture.pod().unschedulable = Some("volume not bound yet".into());
    step(&mut fixture);
    fixture.facts.pod = Some(waiting_pod());
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
    fixture.facts.pod = Some(waiting_pod());
    fixture.facts.readiness = Some(ProbeResult::Ready);
    let status = fixture.reaches(Phase::Running, Reason::Ready).status;
    assert_eq!(status.pod_status, Some(PodStatus::Ready));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.node_name.as_deref(), Some("node-1"));
    assert!(status.ready_at.is_some());
    assert_eq!(condition(&status, "Ready").as_deref(), Some("True"));
}

#[test]
fn stages_of_a_start_are_recorded_unless_its_pod_was_warm() {
    let stages = |scheduled, running| {
        let mut fixture = PlanFixture::new();
        fixture.plan_and_apply();
        let [scheduled_at, started_at] = [scheduled, running].map(|after| fixture.at(after));
        let container = Container {
            state: ContainerState::Running { started_at },
            ..waiting_pod().container
        };
        fixture.facts.pod = Some(PodFacts {
            scheduled_at,
            container,
            ..pod()
        });
        fixture.facts.readiness = Some(ProbeResult::Ready);
        fixture.advance(5);
        let status = fixture.reaches(Phase::Running, Reason::Ready).status;
        let recorded = [status.scheduled_at, status.container_started_at];
        let expected = [scheduled_at, started_at];
        (recorded.map(|at| at.map(|at| at.0)), expected)
    };
    let (recorded, expected) = stages(1, 4);
    assert_eq!(recorded, expected);
    let (recorded, _) = stages(-60, -50);
    assert_eq!(recorded, [None, None]);
}

#[test]
fn sandbox_is_not_ready_without_supervisor_report() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(pod());
    fixture.pod().ready = true;
    fixture.advance(10);
    let plan = fixture.reaches(Phase::Starting, Reason::Initializing);
    assert_eq!(plan.actions, [], "the Pod is adopted");
    assert_eq!(plan.status.pod_status, Some(PodStatus::Running));
}

#[test]
fn unsupervised_sandbox_is_ready_with_its_pod() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(pod());
    fixture.pod().supervised = false;
    let plan = fixture.plan_and_apply();
    assert!(!plan.probe_readiness);
    assert_eq!(plan.status.phase, Phase::Starting);
    fixture.pod().ready = true;
    let plan = fixture.plan_and_apply();
    let early = "it may still terminate at once";
    assert_eq!(plan.status.phase, Phase::Starting, "{early}");
    assert_eq!(plan.requeue_at, fixture.at(2));
    assert_eq!(fixture.after(2).status.phase, Phase::Running);
    // The clock of its node is far ahead.
    let started_at = fixture.at(3600);
    fixture.pod().container.state = ContainerState::Running { started_at };
    fixture.reaches(Phase::Running, Reason::Ready);
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
        fixture.pod().supervised = supervised;
        fixture.pod().ready = true;
        let path = path.map(str::to_owned);
        fixture.probe = Probe { port, path };
        let message = fixture.after(2).status.message;
        assert_eq!(message.as_deref(), Some(basis));
    }
}

#[test]
fn start_fails_after_start_timeout() {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(pod());
    fixture.after(10);
    let plan = fixture.plan_and_apply();
    assert_eq!(plan.requeue_at, fixture.at(15 * 60 - 10));
    fixture.advance(15 * 60);
    let status = fixture.reaches(Phase::Failed, Reason::StartTimeout).status;
    assert_eq!(status.pod_status, Some(PodStatus::Failed));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(&status, "Failed").as_deref(), Some("True"));
    let deleted = deletes_pod(&fixture.plan_and_apply());
    assert_eq!(deleted, Some(DeletionGrace::PodDefault));

    let mut patient = PlanFixture::starting();
    patient.deadlines.start_timeout = None;
    patient.facts.pod = Some(pod());
    assert_eq!(patient.after(1_000_000).status.phase, Phase::Starting);
}

#[test]
fn three_crashes_before_ready_are_a_crash_loop() {
    let mut fixture = PlanFixture::new();
    for restarts in 0..2 {
        crash(&mut fixture, restarts);
        let plan = fixture.after(20);
        assert_eq!(plan.status.phase, Phase::Starting, "{restarts}");
        assert_eq!(plan.status.pod_status, Some(PodStatus::Pending));
        assert!(!plan.probe_readiness);
    }
    crash(&mut fixture, 2);
    fixture.advance(20);
    let plan = fixture.reaches(Phase::Failed, Reason::CrashLoop);
    assert_eq!(deletes_pod(&plan), Some(DeletionGrace::PodDefault));
    let status = plan.status;
    assert_eq!(status.pod_status, Some(PodStatus::CrashLoopBackOff));
    assert_eq!(status.restarts.reasons, ["exit code 1", "exit code 1"]);
    let message =
        "the command terminated 3 times; last termination: exit code 1: cannot start bash";
    assert_eq!(status.message.as_deref(), Some(message));
}

fn crash(fixture: &mut PlanFixture, restarts: u32) {
    fixture.facts.pod = Some(pod());
    let container = terminated(ContainerState::BackingOff, restarts, "exit code 1");
    fixture.pod().container = container;
    fixture.pod().container.termination_message = Some("cannot start bash".into());
}

#[test]
fn failed_sandbox_starts_again_once_per_wake() {
    let invalid = rejection(Reason::InvalidSpec, true);
    let mut fixture = PlanFixture::new();
    fixture.entry.status = fixture.status_after_rejection(&invalid);
    fixture.entry.wake_at = Some(fixture.now);
    assert_eq!(fixture.after(10).actions, [], "the wake is not newer");
    fixture.entry.wake_at = fixture.at(5);
    let plan = fixture.plan_and_apply();
    assert_eq!((plan.actions, plan.requeue_at), (vec![], fixture.at(5)));
    fixture.advance(5);
    assert!(creates_pod(&fixture.plan()).is_some());
    fixture.entry.status = fixture.status_after_rejection(&invalid);
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
fn repeatedly_rejected_start_times_out() {
    let mut fixture = PlanFixture::new();
    let taken = rejection(Reason::NameTaken, false);
    let phases = [0; 3].map(|_| {
        let plan = fixture.plan();
        fixture.entry.status = if plan.actions.is_empty() {
            plan.status
        } else {
            fixture.status_after_rejection(&taken)
        };
        fixture.advance(10 * 60);
        fixture.status().phase
    });
    assert_eq!(phases, [Phase::Pending, Phase::Pending, Phase::Failed]);
}

#[test]
fn missing_secret_is_tolerated_until_start_timeout() {
    let mut fixture = PlanFixture::starting();
    fixture.facts.pod = Some(pod());
    fixture.pod().container.state = ContainerState::Waiting;
    let problem = start_problem(StartProblemKind::MissingReference, fixture.now);
    fixture.pod().start_problem = Some(problem);
    for minutes in [0, 3, 11] {
        fixture.advance(minutes * 60);
        fixture.reaches(Phase::Starting, Reason::CreateContainerConfigError);
    }
    fixture.advance(60);
    fixture.reaches(Phase::Failed, Reason::StartTimeout);
}

#[test]
fn failed_sandbox_restarts_when_pool_template_changes() {
    let mut fixture = PlanFixture::new();
    fixture.spec().pool = Some("p".into());
    for revision in ["first", "second"] {
        fixture.facts.pool_revision = Some(revision.into());
        assert!(creates_pod(&fixture.plan()).is_some());
        fixture.entry.status =
            fixture.status_after_rejection(&rejection(Reason::InvalidSpec, true));
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
    assert_eq!(fixture.plan_and_apply().status.phase, Phase::Starting);
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
    fixture.facts.replace_at = fixture.at(1);
    assert_eq!(creates_pod(&fixture.plan_and_apply()), None);
    fixture.facts.replace_at = None;
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(2));
    fixture.reaches(Phase::Failed, Reason::CrashLoop);
}

#[test]
fn restarted_controller_keeps_status_of_slow_start() {
    let mut fixture = PlanFixture::new();
    fixture.facts.pod = Some(pod());
    fixture.facts.readiness = Some(ProbeResult::NotReady(Some("port 8000 is closed".into())));
    fixture.advance(60);
    fixture.reaches(Phase::Starting, Reason::WaitingForCommand);
    let before = fixture.status().clone();
    fixture.facts.readiness = None;
    assert!(fixture.after(60).probe_readiness);
    assert_eq!(*fixture.status(), before);
}

#[test]
fn start_timeout_begins_when_quota_is_granted() {
    let mut fixture = PlanFixture::new();
    fixture.facts.quota = queued();
    fixture.reaches(Phase::Pending, Reason::QuotaExceeded);
    fixture.after(14 * 60);
    fixture.facts.quota = QuotaDecision::Admitted;
    assert_eq!(creates_pod(&fixture.plan_and_apply()), Some(0));
    assert_eq!(fixture.status().started_at.as_ref().unwrap().0, fixture.now);
    assert_eq!(fixture.after(14 * 60).status.phase, Phase::Starting);
}
