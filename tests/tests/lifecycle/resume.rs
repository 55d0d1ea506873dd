//! A resume that was answered is never lost, whatever the controller knows at that moment.

use std::time::Duration;

use crds::sandbox::{PauseReason, Phase};
use serde_json::{Value, json};
use tests::world::{TestGateway, World};

/// A session that fell asleep by itself, and its id as a body.
async fn asleep(world: &mut World) -> (TestGateway, String, Value) {
    world.config.defaults.lifecycle.idle_timeout = Some(Duration::from_mins(10));
    world.start_controller();
    let gateway = world.gateway().await;
    let start = json!({
        "session_id": "s", "image": "debian:12", "environment": {}, "command": ["server"],
    });
    let started = gateway.post("/start", &start).await.body;
    let name = started["runtime_id"].as_str().unwrap().to_owned();
    let entry = world.phase(&name, Phase::Running).await;
    let ip = entry.status.pod_ip.clone().unwrap();
    world.supervisors.idle_for(&ip, Duration::from_hours(9));
    let paused = world.phase(&name, Phase::Paused).await;
    assert_eq!(paused.status.pause_reason, Some(PauseReason::Idle));
    (gateway, name.clone(), json!({"runtime_id": name}))
}

#[tokio::test(start_paused = true)]
async fn a_resume_wakes_what_fell_asleep() {
    let mut world = World::without_controller();
    let (gateway, name, id) = asleep(&mut world).await;
    let resumed = gateway.post("/resume", &id).await;
    assert_eq!(
        (resumed.status.as_u16(), &resumed.body["status"]),
        (200, &json!("starting"))
    );
    world.phase(&name, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_a_resume_while_the_controller_is_away_end_in_running() {
    let mut world = World::without_controller();
    let (gateway, name, id) = asleep(&mut world).await;
    world.stop_controller();
    assert_eq!(gateway.post("/pause", &id).await.body["status"], "paused");
    let resumed = gateway.post("/resume", &id).await;
    assert_eq!(
        (resumed.status.as_u16(), &resumed.body["status"]),
        (200, &json!("starting"))
    );
    world.start_controller();
    world.phase(&name, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_has_not_heard_of_the_pause_wakes_it_all_the_same() {
    let mut world = World::without_controller();
    let (_, name, id) = asleep(&mut world).await;
    // Its index is as old as its first list.
    world.api.faults().set_watch_lag(Duration::from_secs(30));
    let late = world.gateway().await;
    let resumed = late.post("/resume", &id).await;
    assert_eq!(
        (resumed.status.as_u16(), &resumed.body["status"]),
        (200, &json!("starting"))
    );
    world.phase(&name, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_at_the_last_moment_keeps_the_workspace() {
    let mut world = World::without_controller();
    world.config.defaults.lifecycle.delete_paused_after = Some(Duration::from_hours(1));
    let (gateway, name, id) = asleep(&mut world).await;
    let paused_at = world.wait(&name, |_| true).await.unwrap();
    let paused_at = paused_at.status.paused_at.clone().unwrap().0;
    // The controller hears of the resume too late.
    world.api.faults().set_watch_lag(Duration::from_secs(20));
    let left = world.api.clock().now().duration_since(paused_at);
    let left = Duration::from_hours(1).saturating_sub(left.try_into().unwrap());
    tokio::time::sleep(left.saturating_sub(Duration::from_secs(5))).await;
    assert_eq!(gateway.post("/resume", &id).await.status, 200);
    world.phase(&name, Phase::Running).await;
}
