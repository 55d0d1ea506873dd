//! The life of a Sandbox that kubectl made.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, Phase, PodStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use tests::world::World;

#[tokio::test(start_paused = true)]
async fn start_pause_resume_stop_and_the_tombstone_goes() {
    let world = World::new();
    world.create("a").await;
    let running = world.phase("a", Phase::Running).await;
    assert_eq!(running.status.pod_status, Some(PodStatus::Ready));
    assert_eq!(world.names::<Pod>().await, ["a"]);
    assert_eq!(
        world.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );

    world.ask("a", DesiredState::Paused).await;
    let paused = world.phase("a", Phase::Paused).await;
    assert_eq!(paused.status.pod_status, Some(PodStatus::NotFound));
    assert!(paused.status.paused_at.is_some());
    assert!(world.names::<Pod>().await.is_empty());
    assert_eq!(
        world.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );

    world.ask("a", DesiredState::Running).await;
    let resumed = world.phase("a", Phase::Running).await;
    assert_eq!(resumed.status.runtime_id, running.status.runtime_id);
    assert_eq!(resumed.status.url, running.status.url);
    assert_eq!(resumed.uid, running.uid);

    world.ask("a", DesiredState::Stopped).await;
    world.phase("a", Phase::Stopped).await;
    assert!(world.names::<Pod>().await.is_empty());
    assert!(world.names::<PersistentVolumeClaim>().await.is_empty());

    // The tombstone goes after a day, and not before.
    tokio::time::sleep(Duration::from_hours(23)).await;
    assert_eq!(world.names::<Sandbox>().await, ["a"]);
    tokio::time::sleep(Duration::from_mins(61)).await;
    assert!(world.names::<Sandbox>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_is_replaced_with_the_same_workspace_and_url() {
    let world = World::new();
    world.create("a").await;
    let before = world.phase("a", Phase::Running).await;
    world.lose_pod("a").await;
    let ip = before.status.pod_ip.clone();
    let after = world
        .wait("a", |e| {
            e.status.phase == Phase::Running && e.status.pod_ip != ip
        })
        .await
        .unwrap();
    assert_ne!(after.status.pod_ip, ip, "{:?}", after.status);
    assert_eq!(after.status.url, before.status.url);
    assert_eq!(after.status.restarts.count, 1);
    assert_eq!(
        world.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_may_be_lost_any_number_of_times() {
    let world = World::new();
    world.create("a").await;
    let mut ip = world.phase("a", Phase::Running).await.status.pod_ip.clone();
    for _ in 0..6 {
        world.lose_pod("a").await;
        let again = world
            .wait("a", |e| e.is_ready() && e.status.pod_ip != ip)
            .await
            .unwrap();
        assert_eq!(again.status.phase, Phase::Running, "{:?}", again.status);
        ip.clone_from(&again.status.pod_ip);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_become_ready_fails_after_its_start_timeout() {
    let world = World::new();
    world.supervisors.never_ready();
    world.create("a").await;
    world.phase("a", Phase::Starting).await;
    tokio::time::sleep(Duration::from_mins(14)).await;
    let entry = world.phase("a", Phase::Starting).await;
    assert!(!entry.is_ready());
    let failed = world.phase("a", Phase::Failed).await;
    assert_eq!(failed.status.pod_status, Some(PodStatus::Failed));
    assert!(world.names::<Pod>().await.is_empty());
    assert_eq!(
        world.names::<PersistentVolumeClaim>().await,
        ["a-workspace"]
    );
}

#[tokio::test(start_paused = true)]
async fn it_can_be_paused_and_stopped_while_it_starts() {
    let world = World::new();
    world.supervisors.never_ready();
    world.create("a").await;
    world.phase("a", Phase::Starting).await;
    world.ask("a", DesiredState::Paused).await;
    world.phase("a", Phase::Paused).await;
    world.ask("a", DesiredState::Running).await;
    world.phase("a", Phase::Starting).await;
    world.ask("a", DesiredState::Stopped).await;
    world.phase("a", Phase::Stopped).await;
    assert!(world.names::<Pod>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deleting_the_object_takes_everything_with_it() {
    let world = World::new();
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    let sandboxes = world.sandboxes();
    sandboxes
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    while !world.names::<Pod>().await.is_empty()
        || !world.names::<PersistentVolumeClaim>().await.is_empty()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(world.names::<Sandbox>().await.is_empty());
}
