//! The life of a Sandbox that kubectl made.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use tests::test_cluster::TestCluster;

#[tokio::test(start_paused = true)]
async fn start_pause_resume_stop_and_the_tombstone_goes() {
    let cluster = TestCluster::new();
    let running = cluster.running("a").await;
    assert_eq!(running.status.pod_status, Some(PodStatus::Ready));
    assert_eq!(cluster.names::<Pod>().await, ["a"]);
    assert_eq!(
        cluster.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );

    let paused = cluster.bring("a", DesiredState::Paused).await;
    assert_eq!(paused.status.pod_status, Some(PodStatus::NotFound));
    assert!(paused.status.paused_at.is_some());
    assert!(cluster.names::<Pod>().await.is_empty());
    assert_eq!(
        cluster.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );

    let resumed = cluster.bring("a", DesiredState::Running).await;
    assert_eq!(resumed.status.runtime_id, running.status.runtime_id);
    assert_eq!(resumed.status.url, running.status.url);
    assert_eq!(resumed.uid, running.uid);

    cluster.bring("a", DesiredState::Stopped).await;
    assert!(cluster.names::<Pod>().await.is_empty());
    assert!(cluster.names::<PersistentVolumeClaim>().await.is_empty());

    // The tombstone goes after a day, and not before.
    tokio::time::sleep(Duration::from_hours(23)).await;
    assert_eq!(cluster.names::<Sandbox>().await, ["a"]);
    tokio::time::sleep(Duration::from_mins(61)).await;
    assert!(cluster.names::<Sandbox>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_is_replaced_with_the_same_workspace_and_url() {
    let cluster = TestCluster::new();
    let before = cluster.running("a").await;
    cluster.delete_pod_now("a").await;
    let ip = before.status.pod_ip.clone();
    let after = cluster
        .wait("a", |e| {
            e.status.phase == Phase::Running && e.status.pod_ip != ip
        })
        .await
        .unwrap();
    assert_ne!(after.status.pod_ip, ip, "{:?}", after.status);
    assert_eq!(after.status.url, before.status.url);
    assert_eq!(after.status.restarts.count, 1);
    assert_eq!(
        cluster.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_may_be_lost_any_number_of_times() {
    let cluster = TestCluster::new();
    cluster.create("a").await;
    let mut ip = cluster
        .wait_for_phase("a", Phase::Running)
        .await
        .status
        .pod_ip
        .clone();
    for _ in 0..6 {
        cluster.delete_pod_now("a").await;
        let again = cluster
            .wait("a", |e| e.is_ready() && e.status.pod_ip != ip)
            .await
            .unwrap();
        assert_eq!(again.status.phase, Phase::Running, "{:?}", again.status);
        ip.clone_from(&again.status.pod_ip);
    }
}

#[tokio::test(start_paused = true)]
async fn start_fails_after_start_timeout() {
    let cluster = TestCluster::new();
    cluster.supervisors.never_ready();
    cluster.create("a").await;
    cluster.wait_for_phase("a", Phase::Starting).await;
    tokio::time::sleep(Duration::from_mins(14)).await;
    let entry = cluster.wait_for_phase("a", Phase::Starting).await;
    assert!(!entry.is_ready());
    let failed = cluster.wait_for_phase("a", Phase::Failed).await;
    assert_eq!(failed.status.pod_status, Some(PodStatus::Failed));
    assert!(cluster.names::<Pod>().await.is_empty());
    assert_eq!(
        cluster.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );
}

#[tokio::test(start_paused = true)]
async fn it_can_be_paused_and_stopped_while_it_starts() {
    let cluster = TestCluster::new();
    cluster.supervisors.never_ready();
    cluster.create("a").await;
    cluster.wait_for_phase("a", Phase::Starting).await;
    cluster.bring("a", DesiredState::Paused).await;
    cluster.set_state("a", DesiredState::Running).await;
    cluster.wait_for_phase("a", Phase::Starting).await;
    cluster.bring("a", DesiredState::Stopped).await;
    assert!(cluster.names::<Pod>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deleting_the_object_takes_everything_with_it() {
    let cluster = TestCluster::new();
    cluster.running("a").await;
    let sandboxes = cluster.sandboxes();
    sandboxes
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    while !cluster.names::<Pod>().await.is_empty()
        || !cluster.names::<PersistentVolumeClaim>().await.is_empty()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(cluster.names::<Sandbox>().await.is_empty());
}
