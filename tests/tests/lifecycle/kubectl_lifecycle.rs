//! The life of a Sandbox that kubectl made.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use operator::index::Entry;
use tests::test_cluster::TestCluster;

async fn claims(cluster: &TestCluster) -> Vec<String> {
    cluster.names::<PersistentVolumeClaim>().await
}

#[tokio::test(start_paused = true)]
async fn start_pause_resume_stop_and_tombstone_deletion() {
    let cluster = TestCluster::new();
    let running = cluster.running("a").await;
    assert_eq!(running.status.pod_status, Some(PodStatus::Ready));
    assert_eq!(cluster.names::<Pod>().await, ["a"]);
    assert_eq!(claims(&cluster).await, ["a-workspace"]);

    let paused = cluster.bring("a", DesiredState::Paused).await;
    assert_eq!(paused.status.pod_status, Some(PodStatus::NotFound));
    assert!(paused.status.paused_at.is_some());
    assert!(cluster.names::<Pod>().await.is_empty());
    assert_eq!(claims(&cluster).await, ["a-workspace"]);

    let resumed = cluster.bring("a", DesiredState::Running).await;
    assert_eq!(resumed.status.runtime_id, running.status.runtime_id);
    assert_eq!(resumed.status.url, running.status.url);
    assert_eq!(resumed.uid, running.uid);

    cluster.bring("a", DesiredState::Stopped).await;
    assert!(cluster.names::<Pod>().await.is_empty());
    assert!(claims(&cluster).await.is_empty());

    // The tombstone goes after a day, and not before.
    tokio::time::sleep(Duration::from_hours(23)).await;
    assert_eq!(cluster.names::<Sandbox>().await, ["a"]);
    tokio::time::sleep(Duration::from_mins(61)).await;
    assert!(cluster.names::<Sandbox>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changed_spec_is_reported_until_the_next_restart() {
    let cluster = TestCluster::new();
    cluster.running("a").await;
    let needs_restart = |entry: &Entry| {
        let mut all = entry.status.conditions.iter();
        all.any(|c| c.type_ == "RestartNeeded" && c.status == "True" && c.reason == "SpecChanged")
    };
    let change = serde_json::json!({"spec": {"resourceFactor": 2.0}});
    cluster.patch("a", change).await;
    let changed = cluster.wait("a", needs_restart).await.unwrap();
    assert!(needs_restart(&changed) && changed.is_ready());
    cluster.bring("a", DesiredState::Paused).await;
    let restarted = cluster.bring("a", DesiredState::Running).await;
    assert!(!needs_restart(&restarted), "{:?}", restarted.status);
}
