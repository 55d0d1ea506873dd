//! A resume that was answered is never lost, even if the controller's index is behind.

use std::time::Duration;

use crds::sandbox::{PauseReason, Phase};
use serde_json::{Value, json};
use tests::clients::text;
use tests::test_cluster::{TestCluster, TestGateway, start_body};

/// A session that fell asleep by itself, and its id as a body.
async fn asleep(cluster: &mut TestCluster) -> (TestGateway, String, Value) {
    cluster.config.defaults.lifecycle.idle_timeout = Some(Duration::from_mins(10));
    cluster.start_controller();
    let gateway = cluster.gateway().await;
    let started = gateway.start(&start_body("s")).await;
    let name = text(&started, "runtime_id");
    let entry = cluster.wait_for_phase(&name, Phase::Running).await;
    let ip = entry.status.pod_ip.clone().unwrap();
    cluster.supervisors.idle_for(&ip, Duration::from_hours(9));
    let paused = cluster.wait_for_phase(&name, Phase::Paused).await;
    assert_eq!(paused.status.pause_reason, Some(PauseReason::Idle));
    (gateway, name.clone(), json!({"runtime_id": name}))
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_without_controller_end_in_running() {
    let mut cluster = TestCluster::without_controller();
    let (gateway, name, id) = asleep(&mut cluster).await;
    cluster.stop_controller();
    assert_eq!(gateway.post("/pause", &id).await.body["status"], "paused");
    let resumed = gateway.post("/resume", &id).await;
    assert_eq!(resumed.success()["status"], "starting");
    cluster.start_controller();
    cluster.wait_for_phase(&name, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn stale_gateway_wakes_idle_paused_sandbox() {
    let mut cluster = TestCluster::without_controller();
    let (_, name, id) = asleep(&mut cluster).await;
    // Its index is as old as its first list.
    cluster.faults().set_watch_lag(Duration::from_secs(30));
    let late = cluster.gateway().await;
    let resumed = late.post("/resume", &id).await;
    assert_eq!(resumed.success()["status"], "starting");
    cluster.wait_for_phase(&name, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn resume_just_before_deletion_keeps_the_workspace() {
    let mut cluster = TestCluster::without_controller();
    cluster.config.defaults.lifecycle.delete_paused_after = Some(Duration::from_hours(1));
    let (gateway, name, id) = asleep(&mut cluster).await;
    let paused_at = cluster.wait(&name, |_| true).await.unwrap();
    let paused_at = paused_at.status.paused_at.clone().unwrap().0;
    // The controller hears of the resume too late.
    cluster.faults().set_watch_lag(Duration::from_secs(20));
    let left = cluster.api.clock().now().duration_since(paused_at);
    let left = Duration::from_hours(1).saturating_sub(left.try_into().unwrap());
    tokio::time::sleep(left.saturating_sub(Duration::from_secs(5))).await;
    assert_eq!(gateway.post("/resume", &id).await.status, 200);
    cluster.wait_for_phase(&name, Phase::Running).await;
}
