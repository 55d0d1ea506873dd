//! A thousand sandboxes at once, through everything that can be asked of them.

use std::time::Duration;

use crds::sandbox::{DesiredState, PauseReason, Phase};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use tests::world::World;

const SIZE: usize = 1000;
/// The longest a step may take for all of them, with [`LATENCY`] for every request.
const SOON: Duration = Duration::from_secs(10);
const LATENCY: Duration = Duration::from_millis(5);

/// Does something for each of them, many at a time.
async fn each<F: Future<Output = ()>>(each: impl Fn(String) -> F) {
    let all = futures::stream::iter((0..SIZE).map(|n| format!("s{n}")));
    all.for_each_concurrent(64, each).await;
}

async fn reach(world: &World, phase: Phase) {
    let took = world.all(SOON, |e| e.status.phase == phase).await;
    println!("{phase:?} after {took:?}");
}

async fn counts(world: &World) -> (usize, usize) {
    let pods = world.names::<Pod>().await.len();
    (pods, world.names::<PersistentVolumeClaim>().await.len())
}

/// That many sandboxes that run.
async fn fleet() -> World {
    let world = World::new();
    world.api.faults().set_latency(LATENCY);
    let spec = json!({"lifecycle": {"idleTimeout": "30m"}});
    each(async |name| drop(world.create_with(&name, &spec).await)).await;
    reach(&world, Phase::Running).await;
    assert_eq!(counts(&world).await, (SIZE, SIZE));
    world
}

/// Every Pod was needed, and every write.
fn check(world: &World, pods: usize) {
    assert_eq!(world.node.created().len(), pods);
    world.node.assert_no_doubles();
    assert!(world.idle_writes().is_empty(), "{:?}", world.idle_writes());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sandboxes_start_pause_resume_and_stop() {
    let world = fleet().await;
    each(async |name| world.ask(&name, DesiredState::Paused).await).await;
    reach(&world, Phase::Paused).await;
    assert_eq!(counts(&world).await, (0, SIZE));

    each(async |name| world.ask(&name, DesiredState::Running).await).await;
    reach(&world, Phase::Running).await;
    each(async |name| world.ask(&name, DesiredState::Stopped).await).await;
    reach(&world, Phase::Stopped).await;
    world.quiet().await;
    assert_eq!(counts(&world).await, (0, 0));
    check(&world, 2 * SIZE);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sandboxes_fall_asleep_and_wake() {
    let world = fleet().await;
    let idle_since = Some(Duration::from_hours(1));
    world.supervisors.all_idle_for(idle_since);
    tokio::time::sleep(Duration::from_mins(30)).await;
    reach(&world, Phase::Paused).await;
    let idle = |e: &operator::index::Entry| e.status.pause_reason == Some(PauseReason::Idle);
    assert_eq!(world.index.list(idle).len(), SIZE);
    assert_eq!(counts(&world).await, (0, SIZE));

    world.supervisors.all_idle_for(None);
    each(async |name| world.wake(&name).await).await;
    reach(&world, Phase::Running).await;
    check(&world, 2 * SIZE);
}
