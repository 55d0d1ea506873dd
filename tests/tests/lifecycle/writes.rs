//! How much the API server has to do for us (design: few writes, none without a change).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::names;
use crds::sandbox::{DesiredState, Phase};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use standalone::api::{Failure, Verb};
use tests::world::{Fate, World};
use tokio::time::sleep;

/// Write requests of the controller since the last call, in order, failed ones included. Events
/// are counted by a test of their own.
fn taken(world: &World) -> Vec<String> {
    let writes = world.controller_writes();
    world.api.faults().clear_writes();
    let writes = writes.iter().filter(|w| w.request.resource != "events");
    let texts = writes.map(|write| {
        let request = &write.request;
        let (verb, resource) = (request.verb, &request.resource);
        let sub = request.subresource.map(|sub| format!("/{sub:?}"));
        format!("{verb:?} {resource}{}", sub.unwrap_or_default())
    });
    texts.collect()
}

const CLAIM: &str = "Create persistentvolumeclaims";
const POD: &str = "Create pods";
const STATUS: &str = "Patch sandboxes/Status";
const END: &str = "Delete pods";

#[tokio::test(start_paused = true)]
async fn a_cold_start_takes_claim_pod_and_one_status_write() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    world.quiet().await;
    assert_eq!(taken(&world), [CLAIM, POD, STATUS]);
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_life_takes_the_writes_that_it_needs() {
    let world = World::new();
    let spec = json!({"lifecycle": {"idleTimeout": "10m"}});
    world.create_with("a", &spec).await;
    world.phase("a", Phase::Running).await;
    taken(&world);

    world.ask("a", DesiredState::Paused).await;
    world.phase("a", Phase::Paused).await;
    assert_eq!(taken(&world), [END, STATUS, STATUS], "pause");
    world.ask("a", DesiredState::Running).await;
    world.phase("a", Phase::Running).await;
    assert_eq!(taken(&world), [CLAIM, POD, STATUS, STATUS], "resume");

    world
        .supervisors
        .all_idle_for(Some(Duration::from_hours(1)));
    world.phase("a", Phase::Paused).await;
    assert_eq!(taken(&world), [STATUS, END, STATUS], "idle pause");
    world.supervisors.all_idle_for(None);
    world.wake("a").await;
    world.phase("a", Phase::Running).await;
    assert_eq!(taken(&world), [CLAIM, POD, STATUS, STATUS], "wake");

    world.node.restart("a", "OOMKilled").await;
    world.quiet().await;
    assert_eq!(taken(&world), [STATUS, STATUS], "restart of the container");
    world.lose_pod("a").await;
    world.quiet().await;
    assert_eq!(taken(&world), [CLAIM, POD, STATUS, STATUS], "lost Pod");

    world.ask("a", DesiredState::Stopped).await;
    world.quiet().await;
    let claim = "Delete persistentvolumeclaims";
    assert_eq!(taken(&world), [END, claim, STATUS], "stop");
}

/// Sandboxes in every state that lasts.
async fn every_state() -> World {
    use Phase::{Failed, Paused, Pending, Running, Starting, Stopped};
    let world = World::new();
    let lasting = json!({"lifecycle": {"startTimeout": "99999h", "deleteStoppedAfter": "99999h"}});
    for name in [
        "runs",
        "runs-too",
        "restarted",
        "replaced",
        "paused",
        "stopped",
    ] {
        world.create_with(name, &lasting).await;
        world.phase(name, Phase::Running).await;
    }
    world.node.restart("restarted", "OOMKilled").await;
    world.lose_pod("replaced").await;
    world.ask("paused", DesiredState::Paused).await;
    world.ask("stopped", DesiredState::Stopped).await;
    world.node.decide("starts", Fate::NeverReady);
    world.create_with("starts", &lasting).await;
    world.node.decide("pending", Fate::Unschedulable);
    world.create_with("pending", &lasting).await;
    world.node.decide("failed", Fate::CannotPull);
    world.create_with("failed", &lasting).await;
    world
        .create_with("waits", &json!({"pool": "unknown"}))
        .await;
    world.quiet().await;
    let phases: Vec<_> = world
        .index
        .list(|_| true)
        .iter()
        .map(|e| e.status.phase)
        .collect();
    let count = |phase| phases.iter().filter(|p| **p == phase).count();
    let counts = [Running, Paused, Stopped, Starting, Failed, Pending].map(count);
    assert_eq!(counts, [4, 1, 1, 2, 1, 1], "{phases:?}");
    world
}

/// Counts the lists of Sandboxes that the controller asks for.
fn count_lists(world: &World) -> Arc<AtomicUsize> {
    let lists = Arc::new(AtomicUsize::new(0));
    let counter = lists.clone();
    // A rule that looks at every request and applies to none.
    world
        .api
        .faults()
        .fail_next(1, Failure::Refuse, move |request| {
            let ours = request.user_agent == names::CONTROLLER;
            if ours && request.verb == Verb::List && request.resource == "sandboxes" {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            false
        });
    lists
}

/// Makes everybody list everything again: the history is forgotten, and their watches break.
async fn resync(world: &World, round: usize) {
    let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
    let spaces: kube::Api<k8s_openapi::api::core::v1::Namespace> =
        kube::Api::all(world.observer.clone());
    let params = PatchParams::default();
    spaces
        .patch("default", &params, &Patch::Merge(patch))
        .await
        .unwrap();
    world.api.forget_history();
    world.api.faults().drop_watches();
    sleep(Duration::from_secs(35)).await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_looks_at_unchanged_sandboxes_write_nothing() {
    let world = every_state().await;
    world.api.faults().clear_writes();
    let lists = count_lists(&world);
    for round in 0..1000 {
        resync(&world, round).await;
    }
    // Ten sandboxes, each of which a list has looked at.
    assert!(lists.load(Ordering::Relaxed) >= 1000, "{lists:?}");
    assert_eq!(taken(&world), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_while_nothing_changes() {
    let mut world = every_state().await;
    // Events come a moment later.
    sleep(Duration::from_mins(1)).await;
    let before = world.api.revision();
    sleep(Duration::from_hours(6)).await;
    assert_eq!(world.api.revision(), before, "{:#?}", taken(&world));

    // Neither by controllers that come back and remember nothing.
    for _ in 0..50 {
        world.start_controller();
        sleep(Duration::from_mins(5)).await;
    }
    assert_eq!(world.api.revision(), before, "{:#?}", taken(&world));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_goes_well_is_one_event() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    sleep(Duration::from_mins(1)).await;
    let writes = world.api.faults().writes();
    let mut events = writes.iter().filter(|w| w.request.resource == "events");
    assert!(events.next().is_some_and(|w| w.changed));
    assert_eq!(events.next(), None);
}
