//! From a new object to a running sandbox, or to a start that fails.

use crds::conditions::Reason;
use crds::sandbox::{Phase, PodStatus};

use super::*;

#[test]
fn a_new_sandbox_gets_claim_and_pod() {
    let mut world = World::new();
    let plan = world.step();
    assert_eq!(
        plan.actions,
        [Action::CreateClaim, Action::CreatePod { restarts: 0 }]
    );
    assert!(
        !plan.reports,
        "the first word of a start is not worth a write"
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
fn a_slow_start_says_what_it_waits_for_and_nothing_of_what_passes_soon() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    });
    world.pass(4);
    world.step();
    assert_eq!(world.status().reason, Some(Reason::CreatingPod));
    let written = world.status().clone();

    world.facts.pod = Some(pod());
    let started_at = Some(world.now);
    world.pod().container.state = ContainerState::Running { started_at };
    world.pass(2);
    let plan = world.step();
    assert_eq!(*world.status(), written);
    assert!(
        plan.next
            .is_some_and(|next| next <= world.now + SignedDuration::from_secs(1))
    );
    world.pass(1);
    world.step();
    assert_eq!(world.status().reason, Some(Reason::Initializing));
}

#[test]
fn without_workspace_there_is_no_claim_and_the_status_says_so() {
    let mut world = World::new();
    world.spec().workspace = None;
    assert_eq!(world.step().actions, [Action::CreatePod { restarts: 0 }]);
    world.facts.pod = Some(pod());
    world.facts.answer = Some(Answer::Ready);
    world.step();
    assert!(
        world
            .status()
            .message
            .as_ref()
            .unwrap()
            .contains("lost on pause")
    );
}

#[test]
fn a_quick_start_writes_its_status_once() {
    let mut world = World::new();
    let mut written = 0;
    let mut step = |world: &mut World| {
        let before = world.entry.status.clone();
        world.step();
        written += u32::from(world.entry.status != before);
    };
    step(&mut world);
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        ip: None,
        node: None,
        container: Container::default(),
        ..pod()
    });
    step(&mut world);
    world.pod().unschedulable = Some("volume not bound yet".into());
    step(&mut world);
    world.pod().unschedulable = None;
    world.pod().ip = pod().ip;
    world.pod().node = pod().node;
    step(&mut world);
    world.facts.pod = Some(pod());
    step(&mut world);
    world.facts.answer = Some(Answer::NotReady(None));
    step(&mut world);
    world.pass(1);
    world.facts.answer = Some(Answer::Ready);
    step(&mut world);
    assert_eq!(world.status().phase, Phase::Running);
    assert_eq!(written, 1);
}

#[test]
fn a_pod_is_asked_as_soon_as_it_has_an_address() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    });
    assert!(world.step().asks);
    world.pod().ip = None;
    assert!(!world.step().asks);
}

#[test]
fn the_supervisors_word_counts_before_the_kubelets() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        container: Container::default(),
        ..pod()
    });
    world.facts.answer = Some(Answer::Ready);
    world.step();
    let status = world.status();
    assert_eq!(status.phase, Phase::Running);
    assert_eq!(status.pod_status, Some(PodStatus::Ready));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.node_name.as_deref(), Some("node-1"));
    assert!(status.ready_at.is_some());
    assert_eq!(condition(status, "Ready").as_deref(), Some("True"));
}

#[test]
fn without_the_supervisors_word_nothing_is_ready() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        ready: true,
        ..pod()
    });
    world.pass(10);
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().reason, Some(Reason::Initializing));
    assert_eq!(world.status().pod_status, Some(PodStatus::Running));
}

#[test]
fn details_are_told_of_a_slow_start() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(pod());
    let plan = world.step();
    assert_eq!(plan.next, Some(world.now + SignedDuration::from_secs(3)));
    world.pass(3);
    world.facts.answer = Some(Answer::NotReady(Some("port 60000 is closed".into())));
    world.step();
    assert_eq!(world.status().reason, Some(Reason::WaitingForCommand));
    assert_eq!(
        world.status().message.as_deref(),
        Some("port 60000 is closed")
    );
}

#[test]
fn an_unsupervised_sandbox_is_ready_with_its_pod() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        supervised: false,
        ..pod()
    });
    let plan = world.step();
    assert!(!plan.asks);
    assert_eq!(plan.status.phase, Phase::Starting);
    world.pod().ready = true;
    assert_eq!(world.step().status.phase, Phase::Running);
}

#[test]
fn an_unsupervised_sandbox_with_a_port_waits_for_it() {
    let mut world = World::new();
    world.port = Some(8080);
    world.step();
    world.facts.pod = Some(PodFacts {
        supervised: false,
        ready: true,
        ..pod()
    });
    let plan = world.step();
    assert!(plan.asks);
    assert_eq!(plan.status.phase, Phase::Starting);
    world.facts.answer = Some(Answer::Ready);
    assert_eq!(world.step().status.phase, Phase::Running);
}

#[test]
fn a_pod_from_before_a_crash_of_the_controller_is_adopted() {
    let mut world = World::new();
    world.facts.pod = Some(pod());
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status.phase, Phase::Starting);
    assert_eq!(plan.status.restarts.count, 0);
}

#[test]
fn a_missing_pool_is_waited_for() {
    let mut world = World::new();
    world.spec().pool = Some("default".into());
    world.facts.pool_missing = true;
    assert_eq!(world.step().actions, []);
    assert_eq!(world.status().phase, Phase::Pending);
    assert_eq!(world.status().reason, Some(Reason::PoolNotFound));
    world.pass(10_000);
    world.facts.pool_missing = false;
    assert_eq!(creates_pod(&world.step()), Some(0));
    assert_eq!(world.status().reason, Some(Reason::CreatingPod));
}

#[test]
fn a_start_that_takes_too_long_fails() {
    let mut world = World::starting();
    world.facts.pod = Some(pod());
    world.pass(10);
    world.step();
    let plan = world.step();
    assert_eq!(
        plan.next,
        Some(world.now + SignedDuration::from_secs(15 * 60 - 10))
    );
    world.pass(15 * 60);
    world.step();
    let status = world.status();
    assert_eq!(status.phase, Phase::Failed);
    assert_eq!(status.reason, Some(Reason::StartTimeout));
    assert_eq!(status.pod_status, Some(PodStatus::Failed));
    assert_eq!(status.workspace_claim.as_deref(), Some("a-workspace"));
    assert_eq!(condition(status, "Failed").as_deref(), Some("True"));
    assert_eq!(deletes_pod(&world.step()), Some(Grace::Own));
}

#[test]
fn no_start_timeout_means_patience() {
    let mut world = World::starting();
    world.deadlines.start_timeout = None;
    world.step();
    world.facts.pod = Some(pod());
    world.pass(1_000_000);
    assert_eq!(world.step().status.phase, Phase::Starting);
}

#[test]
fn an_unschedulable_pod_waits_for_a_node() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        phase: PodPhase::Pending,
        ip: None,
        unschedulable: Some("0/3 nodes are available".into()),
        container: Container::default(),
        ..pod()
    });
    world.pass(4);
    world.step();
    assert_eq!(world.status().reason, Some(Reason::Unschedulable));
    assert_eq!(world.status().pod_status, Some(PodStatus::Pending));
    assert_eq!(
        world.status().message.as_deref(),
        Some("0/3 nodes are available")
    );
}

#[test]
fn a_failed_pull_is_tried_for_two_minutes() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        container: Container::default(),
        trouble: Some(trouble(TroubleKind::ImagePull, world.now)),
        ..pod()
    });
    world.step();
    assert_eq!(world.status().reason, Some(Reason::ImagePull));
    assert_eq!(world.status().pod_status, Some(PodStatus::Pending));
    world.pass(119);
    assert_eq!(world.step().status.phase, Phase::Starting);
    world.pass(1);
    let plan = world.step();
    assert_eq!(plan.status.phase, Phase::Failed);
    assert_eq!(plan.status.reason, Some(Reason::ImagePull));
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert!(!plan.asks);
}

#[test]
fn an_impossible_image_name_fails_at_once() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        trouble: Some(trouble(TroubleKind::ImageName, world.now)),
        container: Container::default(),
        ..pod()
    });
    assert_eq!(world.step().status.phase, Phase::Failed);
    assert_eq!(world.status().pod_status, Some(PodStatus::Failed));
}

#[test]
fn a_bad_container_configuration_fails_after_a_while() {
    let mut world = World::new();
    world.step();
    world.facts.pod = Some(PodFacts {
        trouble: Some(trouble(TroubleKind::ContainerConfig, world.now)),
        container: Container::default(),
        ..pod()
    });
    world.step();
    assert_eq!(world.status().reason, Some(Reason::ContainerConfig));
    world.pass(120);
    assert_eq!(world.step().status.phase, Phase::Failed);
}

#[test]
fn three_crashes_before_readiness_are_a_crash_loop() {
    let mut world = World::new();
    world.step();
    for ends in 1..=3 {
        world.facts.pod = Some(PodFacts {
            container: Container {
                state: ContainerState::BackingOff,
                restarts: ends - 1,
                last_end: Some("exit code 1".into()),
                last_words: Some("cannot start bash".into()),
            },
            ..pod()
        });
        world.pass(20);
        let plan = world.step();
        if ends < 3 {
            assert_eq!(plan.status.phase, Phase::Starting, "{ends}");
            assert_eq!(plan.status.pod_status, Some(PodStatus::Pending));
            assert!(!plan.asks);
        } else {
            assert_eq!(plan.status.phase, Phase::Failed);
            assert_eq!(plan.status.reason, Some(Reason::CrashLoop));
            assert_eq!(plan.status.pod_status, Some(PodStatus::CrashLoopBackOff));
            assert_eq!(plan.status.restarts.reasons, ["exit code 1", "exit code 1"]);
            let message = "the command ended 3 times, last with exit code 1: cannot start bash";
            assert_eq!(plan.status.message.as_deref(), Some(message));
            assert_eq!(deletes_pod(&plan), Some(Grace::Own));
        }
    }
}

#[test]
fn what_failed_stays_so_until_the_spec_changes() {
    let mut world = World::new();
    world.entry.status.phase = Phase::Failed;
    world.entry.status.observed_generation = Some(1);
    world.step();
    assert_eq!(world.status().phase, Phase::Failed);
    world.entry.generation = 2;
    assert_eq!(creates_pod(&world.step()), Some(0));
    assert_eq!(world.status().phase, Phase::Starting);
}

#[test]
fn the_pod_of_a_failed_start_is_not_taken_for_the_next_one() {
    let mut world = World::new();
    world.entry.status.phase = Phase::Failed;
    world.entry.status.observed_generation = Some(0);
    world.facts.pod = Some(pod());
    let plan = world.plan();
    assert_eq!(deletes_pod(&plan), Some(Grace::Own));
    assert_eq!(plan.status.pod_name, None);
}

#[test]
fn a_fatal_refusal_fails_and_another_one_waits() {
    let world = World::new();
    let mut refusal = Refusal {
        reason: Reason::InvalidSpec,
        message: "spec.podTemplate: x".into(),
        fatal: true,
    };
    let status = world.refuse(&refusal);
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Failed, Some(Reason::InvalidSpec))
    );
    refusal.fatal = false;
    refusal.reason = Reason::NameTaken;
    let status = world.refuse(&refusal);
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Pending, Some(Reason::NameTaken))
    );
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
}

#[test]
fn a_start_refused_again_and_again_times_out() {
    let mut world = World::new();
    let refusal = Refusal {
        reason: Reason::NameTaken,
        message: "taken".into(),
        fatal: false,
    };
    let mut phases = Vec::new();
    for _ in 0..3 {
        let plan = world.plan();
        world.entry.status = if plan.actions.is_empty() {
            plan.status
        } else {
            world.refuse(&refusal)
        };
        phases.push(world.status().phase);
        world.pass(10 * 60);
    }
    assert_eq!(phases, [Phase::Pending, Phase::Pending, Phase::Failed]);
}

#[test]
fn a_missing_secret_is_waited_for_as_long_as_a_start_may_take() {
    let mut world = World::starting();
    world.facts.pod = Some(pod());
    world.pod().container.state = ContainerState::Waiting;
    world.pod().trouble = Some(trouble(TroubleKind::Missing, world.now));
    for minutes in [0, 3, 11] {
        world.pass(minutes * 60);
        world.step();
        assert_eq!(world.status().phase, Phase::Starting);
        assert_eq!(world.status().reason, Some(Reason::ContainerConfig));
    }
    world.pass(60);
    world.step();
    assert_eq!(world.status().reason, Some(Reason::StartTimeout));
}

#[test]
fn what_failed_with_one_template_is_tried_with_another_one() {
    let refusal = Refusal {
        reason: Reason::InvalidSpec,
        message: "spec.podTemplate: x".into(),
        fatal: true,
    };
    let mut world = World::new();
    world.spec().pool = Some("p".into());
    for revision in ["first", "second"] {
        world.facts.pool_revision = Some(revision.into());
        assert!(creates_pod(&world.plan()).is_some());
        world.entry.status = world.refuse(&refusal);
        assert_eq!(world.status().phase, Phase::Failed);
        assert_eq!(world.step().actions, []);
        assert_eq!(world.status().pool_revision.as_deref(), Some(revision));
    }
    // Neither without a pool: another one of that name may come.
    world.facts.pool_revision = None;
    world.facts.pool_missing = true;
    assert_eq!(world.step().status.phase, Phase::Failed);
    world.facts.pool_missing = false;
    world.facts.pool_revision = Some("third".into());
    world.step();
    assert_eq!(world.status().phase, Phase::Starting);
    assert_eq!(world.status().pool_revision, None);
}

#[test]
fn pods_that_vanish_before_the_first_status_are_counted_and_paced() {
    let mut world = World::new();
    let plan = world.step();
    assert!(creates_pod(&plan) == Some(0) && !plan.reports);
    world.facts.lost_pod = true;
    let plan = world.step();
    assert_eq!(creates_pod(&plan), Some(1));
    assert!(plan.reports && plan.lost);
    assert_eq!(world.status().restarts.reasons, ["Deleted"]);
    world.facts.replace_at = Some(world.now + SignedDuration::from_secs(1));
    assert_eq!(creates_pod(&world.step()), None);
    world.facts.replace_at = None;
    assert_eq!(creates_pod(&world.step()), Some(2));
    assert_eq!(world.step().status.reason, Some(Reason::CrashLoop));
}

#[test]
fn an_object_that_is_being_deleted_is_left_alone() {
    let mut world = World::new();
    world.entry.deleting = true;
    let plan = world.step();
    assert_eq!(plan.actions, []);
    assert_eq!(plan.status, SandboxStatus::default());
}

#[test]
fn a_restarted_controller_says_nothing_new_of_a_start_that_takes_long() {
    let mut world = World::new();
    world.facts.pod = Some(pod());
    world.facts.answer = Some(Answer::NotReady(Some("port 8000 is closed".into())));
    world.pass(60);
    world.step();
    assert_eq!(world.status().reason, Some(Reason::WaitingForCommand));
    let before = world.status().clone();
    world.facts.answer = None;
    world.pass(60);
    let plan = world.step();
    assert!(plan.asks);
    assert_eq!(*world.status(), before);
}
