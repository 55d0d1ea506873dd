//! Property tests of the planner (`docs/architecture.md`, invariants 1, 2 and 4): random events of
//! Pod, command, spec and controller in random order.
//!
//! The seed is fixed, so that a failure belongs to the change that shows it. `PROPTEST_CASES=50000`
//! tests more histories.

mod cluster;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult};

use super::*;
use cluster::{ClusterModel, ModelFault, ReadinessSource};

/// One event in the history of a sandbox.
#[derive(Debug, Clone)]
enum Event {
    /// The Pod advances: it is scheduled, started, restarted, or gone after its deletion.
    Progress,
    ProbeResult(ProbeResult),
    Fault(ModelFault),
    Want(DesiredState),
    /// The wake annotation is set.
    Wake,
    /// Activity in the sandbox.
    Activity,
    /// Result of an idle check: idle time known or unknown.
    IdleReport(bool),
    Pass(u16),
    ControllerEnds,
    ControllerStarts,
    /// The next status write is lost.
    LoseStatusWrite,
    /// The next action fails.
    FailAction,
}

fn event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        4 => Just(ProbeResult::Ready),
        1 => Just(ProbeResult::NotReady(Some("starting".into()))),
    ];
    let state = prop_oneof![
        3 => Just(DesiredState::Running),
        2 => Just(DesiredState::Paused),
        1 => Just(DesiredState::Stopped),
    ];
    let seconds = prop_oneof![4 => 0_u16..5, 3 => 5_u16..200, 1 => 200_u16..20_000];
    prop_oneof![
        8 => Just(Event::Progress),
        5 => answer.prop_map(Event::ProbeResult),
        5 => fault().prop_map(Event::Fault),
        2 => state.prop_map(Event::Want),
        1 => Just(Event::Wake),
        2 => Just(Event::Activity),
        4 => prop::bool::weighted(0.8).prop_map(Event::IdleReport),
        5 => seconds.prop_map(Event::Pass),
        1 => Just(Event::ControllerEnds),
        3 => Just(Event::ControllerStarts),
        1 => Just(Event::LoseStatusWrite),
        1 => Just(Event::FailAction),
    ]
}

fn fault() -> impl Strategy<Value = ModelFault> {
    let end = prop_oneof![
        Just("OOMKilled"),
        Just("exit code 3"),
        Just("ContainerStatusUnknown"),
    ];
    let problem = prop_oneof![
        Just(StartProblemKind::ImageName),
        Just(StartProblemKind::ImagePull),
        Just(StartProblemKind::ContainerConfig),
    ];
    prop_oneof![
        3 => end.clone().prop_map(ModelFault::Ends),
        2 => end.clone().prop_map(ModelFault::BacksOff),
        3 => end.prop_map(ModelFault::Restarts),
        1 => Just(ModelFault::Evicted),
        1 => Just(ModelFault::Completed),
        1 => Just(ModelFault::Vanishes),
        1 => Just(ModelFault::DeletedByHand),
        1 => Just(ModelFault::NodeLost),
        1 => Just(ModelFault::Unknown),
        1 => problem.prop_map(ModelFault::Trouble),
        1 => Just(ModelFault::Unschedulable),
    ]
}

fn deadlines() -> impl Strategy<Value = Deadlines> {
    let limit = |most: u64| {
        let seconds = (30..most).prop_map(Duration::from_secs);
        proptest::option::weighted(0.3, seconds)
    };
    let (short, long) = (|| limit(900), || limit(4000));
    let all = (short(), long(), long(), long(), short(), long());
    all.prop_map(|(idle, run, paused, stopped, start, warm)| Deadlines {
        idle_timeout: idle,
        max_run_time: run,
        delete_paused_after: paused,
        delete_stopped_after: stopped,
        start_timeout: start,
        warm_resume_for: warm,
    })
}

fn config() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Plays the events. The model checks every plan.
fn play(kind: ReadinessSource, deadlines: Deadlines, events: Vec<Event>) -> ClusterModel {
    let mut cluster = ClusterModel::new(kind, deadlines);
    cluster.reconcile();
    for event in events {
        match event {
            Event::Progress => cluster.progress(),
            Event::ProbeResult(answer) => cluster.complete_probe(answer),
            Event::Fault(fault) => cluster.inject(fault),
            Event::Want(state) => cluster.fixture.set_desired_state(state),
            Event::Wake => cluster.wake(),
            Event::Activity => cluster.record_activity(),
            Event::IdleReport(known) => cluster.complete_idle_check(known),
            Event::Pass(seconds) => cluster.advance(seconds.into()),
            Event::ControllerEnds => cluster.controller = false,
            Event::ControllerStarts => cluster.start_controller(),
            Event::LoseStatusWrite => cluster.lose_status_write = true,
            Event::FailAction => cluster.fail_action = true,
        }
        cluster.reconcile();
    }
    cluster
}

/// Without further faults the sandbox reaches its desired state.
fn converge(mut cluster: ClusterModel) -> TestCaseResult {
    cluster.heal();
    if cluster.phase() == Phase::Failed {
        // Only a spec change restarts a failed sandbox.
        prop_assert!(!cluster.has_pod(), "a failed sandbox holds a Pod");
        cluster.fixture.set_desired_state(DesiredState::Running);
        cluster.heal();
    }
    if cluster.fixture.entry.automatic_pause().is_some() {
        cluster.advance(1);
        cluster.wake();
        cluster.heal();
        prop_assert!(cluster.phase() == Phase::Running, "not woken: {cluster:#?}");
    }
    let (phase, desired) = (cluster.phase(), cluster.desired_state());
    let reached = match desired {
        _ if cluster.deleted => true,
        DesiredState::Running => phase == Phase::Running,
        DesiredState::Paused => {
            phase == Phase::Paused && (!cluster.has_pod() || cluster.has_waiting_pod())
        }
        DesiredState::Stopped => phase == Phase::Stopped && !cluster.has_pod(),
    };
    prop_assert!(reached, "{desired:?} was requested, not {cluster:#?}");
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sandbox_is_truthful_and_converges_with_every_source_of_readiness(
        deadlines in deadlines(), events in vec(event(), 1..60),
    ) {
        use ReadinessSource::{Kubelet, Port, Supervised};
        for source in [Supervised, Port, Kubelet] {
            converge(play(source, deadlines, events.clone()))?;
        }
    }
}
