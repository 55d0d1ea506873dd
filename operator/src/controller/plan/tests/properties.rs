//! What holds in every history of a sandbox, whatever happens to its Pod, its command, its spec
//! and its controller, and in whatever order (design 9, invariants 1, 2 and 4).
//!
//! The seed is fixed, so that a failure is one of the change that shows it.
//! `PROPTEST_CASES=50000` looks further.

mod cluster;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseResult};

use super::*;
use cluster::{Cluster, Fault, Kind};

/// Something that happens.
#[derive(Debug, Clone)]
enum Event {
    /// A Pod gets on with its life: it is scheduled, started, restarted, or gone at last.
    Progress,
    Answer(Answer),
    Fault(Fault),
    Want(DesiredState),
    /// Somebody asks for it to be awake.
    Wake,
    /// Something happens in the sandbox.
    Use,
    /// It says since when nothing has happened, if that is known.
    Quiet(bool),
    Pass(u16),
    ControllerEnds,
    ControllerStarts,
    /// The answer to the next status write, or the write itself, is lost.
    LoseReport,
    /// The next action fails.
    FailAction,
}

fn event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        4 => Just(Answer::Ready),
        1 => Just(Answer::NotReady(Some("starting".into()))),
    ];
    let state = prop_oneof![
        3 => Just(DesiredState::Running),
        2 => Just(DesiredState::Paused),
        1 => Just(DesiredState::Stopped),
    ];
    let seconds = prop_oneof![4 => 0_u16..5, 3 => 5_u16..200, 1 => 200_u16..20_000];
    prop_oneof![
        8 => Just(Event::Progress),
        5 => answer.prop_map(Event::Answer),
        5 => fault().prop_map(Event::Fault),
        2 => state.prop_map(Event::Want),
        1 => Just(Event::Wake),
        2 => Just(Event::Use),
        4 => prop::bool::weighted(0.8).prop_map(Event::Quiet),
        5 => seconds.prop_map(Event::Pass),
        1 => Just(Event::ControllerEnds),
        3 => Just(Event::ControllerStarts),
        1 => Just(Event::LoseReport),
        1 => Just(Event::FailAction),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let end = prop_oneof![
        Just("OOMKilled"),
        Just("exit code 3"),
        Just("ContainerStatusUnknown"),
    ];
    let trouble = prop_oneof![
        Just(TroubleKind::ImageName),
        Just(TroubleKind::ImagePull),
        Just(TroubleKind::ContainerConfig),
    ];
    prop_oneof![
        3 => end.clone().prop_map(Fault::Ends),
        2 => end.clone().prop_map(Fault::BacksOff),
        3 => end.prop_map(Fault::Restarts),
        1 => Just(Fault::Evicted),
        1 => Just(Fault::Completed),
        1 => Just(Fault::Vanishes),
        1 => Just(Fault::DeletedByHand),
        1 => Just(Fault::NodeLost),
        1 => Just(Fault::Unknown),
        1 => trouble.prop_map(Fault::Trouble),
        1 => Just(Fault::Unschedulable),
    ]
}

fn deadlines() -> impl Strategy<Value = Deadlines> {
    let limit = |most: u64| proptest::option::weighted(0.3, 30..most).prop_map(seconds);
    let all = (
        limit(900),
        limit(4000),
        limit(4000),
        limit(4000),
        limit(900),
    );
    all.prop_map(|(idle, run, paused, stopped, start)| Deadlines {
        idle_timeout: idle,
        max_run_time: run,
        delete_paused_after: paused,
        delete_stopped_after: stopped,
        start_timeout: start,
    })
}

fn seconds(number: Option<u64>) -> Option<Duration> {
    number.map(Duration::from_secs)
}

fn config() -> Config {
    Config {
        rng_seed: RngSeed::Fixed(20),
        failure_persistence: None,
        ..Config::default()
    }
}

/// Plays the events; every pass on the way is checked by the cluster.
fn play(kind: Kind, deadlines: Deadlines, events: Vec<Event>) -> Cluster {
    let mut cluster = Cluster::new(kind, deadlines);
    cluster.reconcile();
    for event in events {
        match event {
            Event::Progress => cluster.progress(),
            Event::Answer(answer) => cluster.answer(answer),
            Event::Fault(fault) => cluster.suffer(fault),
            Event::Want(state) => cluster.want(state),
            Event::Wake => cluster.wake(),
            Event::Use => cluster.use_it(),
            Event::Quiet(known) => cluster.answer_quiet(known),
            Event::Pass(seconds) => cluster.pass(seconds.into()),
            Event::ControllerEnds => cluster.end_controller(),
            Event::ControllerStarts => cluster.start_controller(),
            Event::LoseReport => cluster.lose_report = true,
            Event::FailAction => cluster.fail_action = true,
        }
        cluster.reconcile();
    }
    cluster
}

/// Nothing goes wrong any more: the sandbox becomes what its owner asked for.
fn converge(mut cluster: Cluster) -> TestCaseResult {
    cluster.heal();
    if cluster.phase() == Phase::Failed {
        // Given up, which only its owner can change.
        prop_assert!(!cluster.has_pod(), "a failed sandbox holds a Pod");
        cluster.want(DesiredState::Running);
        cluster.heal();
    }
    if cluster.world.entry.own_pause().is_some() {
        cluster.pass(1);
        cluster.wake();
        cluster.heal();
        prop_assert!(cluster.phase() == Phase::Running, "not woken: {cluster:#?}");
    }
    let status = cluster.world.status();
    let reached = match cluster.wanted() {
        _ if cluster.deleted => true,
        DesiredState::Running => status.phase == Phase::Running,
        DesiredState::Paused => status.phase == Phase::Paused && !cluster.has_pod(),
        DesiredState::Stopped => status.phase == Phase::Stopped && !cluster.has_pod(),
    };
    prop_assert!(
        reached,
        "{:?} was asked for, and there is {cluster:#?}",
        cluster.wanted()
    );
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_supervised_sandbox_never_lies_and_always_comes_back(
        deadlines in deadlines(), events in vec(event(), 1..60),
    ) {
        converge(play(Kind::Supervised, deadlines, events))?;
    }

    #[test]
    fn a_sandbox_with_a_port_never_lies_and_always_comes_back(
        deadlines in deadlines(), events in vec(event(), 1..60),
    ) {
        converge(play(Kind::Port, deadlines, events))?;
    }

    #[test]
    fn a_sandbox_judged_by_the_kubelet_never_lies_and_always_comes_back(
        deadlines in deadlines(), events in vec(event(), 1..60),
    ) {
        converge(play(Kind::Kubelet, deadlines, events))?;
    }
}
