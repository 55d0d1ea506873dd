//! The API server misbehaves: it lags, refuses, forgets, loses answers and goes away. Sandboxes
//! get where they shall be all the same, within seconds, and with one Pod each.

use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use standalone::api::{Failure, Outage, RequestInfo, Verb};
use tests::world::{Fate, World, is_ours};
use tokio::time::Instant;

const LAG: Duration = Duration::from_secs(2);
/// The longest a sandbox may take to what it shall be once the trouble is over.
const SOON: Duration = Duration::from_secs(10);

/// Five sandboxes in the middle of five different things, and what becomes of them.
const GOALS: [(&str, Phase); 6] = [
    ("stays", Phase::Running),
    ("starts", Phase::Running),
    ("pauses", Phase::Paused),
    ("resumes", Phase::Running),
    ("stops", Phase::Stopped),
    ("loses", Phase::Running),
];

/// All of them just before their thing happens.
async fn prepare() -> World {
    let world = World::new();
    for name in ["stays", "pauses", "resumes", "stops", "loses"] {
        world.create(name).await;
        world.phase(name, Phase::Running).await;
    }
    world.ask("resumes", DesiredState::Paused).await;
    world.phase("resumes", Phase::Paused).await;
    world.quiet().await;
    world
}

async fn happen(world: &World) {
    world.create("starts").await;
    world.ask("pauses", DesiredState::Paused).await;
    world.ask("resumes", DesiredState::Running).await;
    world.ask("stops", DesiredState::Stopped).await;
    world.lose_pod("loses").await;
}

/// Waits for all of them. How long it took.
async fn arrive(world: &World) -> Duration {
    let begin = Instant::now();
    for (name, phase) in GOALS {
        let settled = |e: &operator::index::Entry| {
            let observed = e.status.observed_generation == Some(e.generation);
            let replaced = name != "loses" || e.status.restarts.count == 1;
            observed && replaced && e.status.phase == phase
        };
        let entry = world.wait(name, settled).await.unwrap();
        assert!(settled(&entry), "{name}: {:?}", entry.status);
    }
    begin.elapsed()
}

/// Nothing is left over, nothing was doubled, and nobody writes any more.
async fn check(world: &World) {
    world.quiet().await;
    let before = world.api.revision();
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(world.api.revision(), before, "writes without a reason");
    world.node.assert_no_doubles();
    let created = world.node.created();
    assert_eq!(created.len(), 5 + 3, "Pods that nobody needed: {created:?}");
    let mut pods = world.names::<Pod>().await;
    pods.sort();
    assert_eq!(pods, ["loses", "resumes", "starts", "stays"]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_lag_cost_no_second_pod_and_no_write() {
    let world = prepare().await;
    world.api.faults().set_watch_lag(LAG);
    happen(&world).await;
    let took = arrive(&world).await;
    // One lag to hear of the wish, one of the Pod's address, one of its end.
    assert!(took <= SOON, "{took:?}");
    check(&world).await;
    let idle = world.idle_writes();
    assert!(idle.is_empty(), "{idle:#?}");
}

#[tokio::test(start_paused = true)]
async fn watches_that_break_all_the_time_cost_nothing_but_time() {
    for lag in [Duration::ZERO, LAG] {
        let world = prepare().await;
        world.api.faults().set_watch_lag(lag);
        happen(&world).await;
        for _ in 0..20 {
            world.api.faults().drop_watches();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        let took = arrive(&world).await;
        assert!(took <= SOON, "{took:?}");
        check(&world).await;
        assert!(world.idle_writes().is_empty(), "{:#?}", world.idle_writes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_history_makes_everybody_list_again_and_nobody_write() {
    for lag in [Duration::ZERO, LAG] {
        let world = prepare().await;
        world.api.faults().set_watch_lag(lag);
        happen(&world).await;
        for _ in 0..5 {
            world.api.forget_history();
            world.api.faults().drop_watches();
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        let took = arrive(&world).await;
        assert!(took <= SOON, "{took:?}");
        check(&world).await;
        assert!(world.idle_writes().is_empty(), "{:#?}", world.idle_writes());
    }
}

#[tokio::test(start_paused = true)]
async fn storms_of_refusals_are_weathered() {
    for code in [
        StatusCode::CONFLICT,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let world = prepare().await;
        let faults = world.api.faults();
        faults.fail_next(60, Failure::Code(code), is_ours);
        happen(&world).await;
        let took = arrive(&world).await;
        assert!(took <= Duration::from_mins(2), "{code}: {took:?}");
        check(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_answer_may_be_lost_once() {
    for lag in [Duration::ZERO, LAG] {
        for verb in [Verb::Create, Verb::Patch, Verb::Delete] {
            let world = prepare().await;
            world.api.faults().set_watch_lag(lag);
            let mine = move |r: &RequestInfo| is_ours(r) && r.verb == verb;
            world.api.faults().fail_next(12, Failure::LoseAnswer, mine);
            happen(&world).await;
            let took = arrive(&world).await;
            assert!(took <= Duration::from_mins(1), "{verb:?}: {took:?}");
            check(&world).await;
        }
    }
}

/// The trouble begins while everything is under way, at different moments of it.
async fn survives_outage(outage: Outage, length: Duration, after: Duration) {
    let world = prepare().await;
    world.api.faults().set_watch_lag(Duration::from_millis(50));
    world.node.decide("starts", Fate::NeverReady);
    happen(&world).await;
    tokio::time::sleep(after).await;
    world.api.faults().set_outage(outage);
    tokio::time::sleep(length / 2).await;
    // Nobody will hear of it from a watch: the answer of the sandbox is all there is.
    world.node.heal("starts").await;
    tokio::time::sleep(length / 2).await;
    world.api.faults().set_outage(Outage::None);
    let took = arrive(&world).await;
    assert!(
        took <= SOON,
        "{outage:?} of {length:?} after {after:?}: {took:?}"
    );
    check(&world).await;
}

/// Everything happens while the server is away.
async fn learns_of_outage(outage: Outage, length: Duration) {
    let world = prepare().await;
    world.api.faults().set_outage(outage);
    tokio::time::sleep(length / 2).await;
    happen(&world).await;
    tokio::time::sleep(length / 2).await;
    world.api.faults().set_outage(Outage::None);
    let took = arrive(&world).await;
    assert!(took <= SOON, "{outage:?} of {length:?}: {took:?}");
    check(&world).await;
}

const LENGTHS: [Duration; 2] = [Duration::from_secs(30), Duration::from_mins(5)];

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_for_minutes_is_back_at_once() {
    for length in LENGTHS {
        for after in [0, 49, 51, 120].map(Duration::from_millis) {
            survives_outage(Outage::Refuse, length, after).await;
        }
        learns_of_outage(Outage::Refuse, length).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_for_minutes_is_back_at_once() {
    for length in LENGTHS {
        for after in [0, 49, 51, 120].map(Duration::from_millis) {
            survives_outage(Outage::Hang, length, after).await;
        }
        learns_of_outage(Outage::Hang, length).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_not_doubted_because_the_server_is_away() {
    for outage in [Outage::Refuse, Outage::Hang] {
        let world = prepare().await;
        let ready = world.status("stays").await;
        world.api.faults().set_outage(outage);
        tokio::time::sleep(Duration::from_mins(20)).await;
        world.api.faults().set_outage(Outage::None);
        world.quiet().await;
        assert_eq!(world.status("stays").await, ready);
        assert_eq!(world.node.created().len(), 5);
    }
}
