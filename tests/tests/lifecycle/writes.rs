//! How much the API server has to do for us (design: few writes, none without a change).

use std::time::Duration;

use crds::sandbox::Phase;
use tests::world::World;

/// Writes of our field managers so far, as text for messages. Events are written by the side, and
/// nothing waits for them.
fn ours(world: &World) -> Vec<String> {
    let writes = world.api.faults().writes();
    writes
        .iter()
        .filter(|w| w.request.manager.starts_with("sandbox-operator"))
        .filter(|w| w.request.resource != "events")
        .map(|w| format!("{w:?}"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_cold_start_takes_claim_pod_and_two_status_writes() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    let writes = ours(&world);
    assert!(writes.len() <= 4, "{writes:#?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    let mut world = World::new();
    for name in ["a", "b"] {
        world.create(name).await;
        world.phase(name, Phase::Running).await;
    }
    // Events come a moment later.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let before = world.api.revision();
    tokio::time::sleep(Duration::from_hours(6)).await;
    assert_eq!(world.api.revision(), before, "{:#?}", ours(&world));

    // Neither by a controller that comes back.
    world.start_controller();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(world.api.revision(), before, "{:#?}", ours(&world));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_goes_well_is_one_event() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let writes = world.api.faults().writes();
    let mut events = writes.iter().filter(|w| w.request.resource == "events");
    assert!(events.next().is_some_and(|w| w.changed));
    assert_eq!(events.next(), None);
}
