//! A sandbox keeps the revision of its pool that it was made from, and says that its own changed spec needs a
//! restart.

use std::time::Duration;

use crds::SandboxPool;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::DeleteParams;
use operator::index::Entry;
use serde_json::json;
use tests::test_cluster::TestCluster;

async fn image(cluster: &TestCluster) -> Option<String> {
    let pod = cluster.api_of::<Pod>().get("a").await.unwrap();
    pod.spec.unwrap().containers[0].image.clone()
}

#[tokio::test(start_paused = true)]
async fn changed_and_deleted_pool_leaves_its_sandboxes_alone() {
    let mut cluster = TestCluster::new();
    let lifecycle = json!({"deletePausedAfter": "10h"});
    let template = json!({"image": "first", "workspace": {"size": "1Gi"}});
    let pool = json!({"template": template, "lifecycle": lifecycle});
    cluster.put_pool(&pool).await;
    let spec = json!({"pool": "p", "image": null, "workspace": null});
    cluster.running_with("a", &spec).await;
    assert_eq!(cluster.status("a").await.pool.unwrap().name, "p");

    let changed =
        json!({"template": {"image": "second"}, "lifecycle": {"deletePausedAfter": "1s"}});
    cluster.put_pool(&changed).await;
    for deleted in [false, true] {
        if deleted {
            let pools: Api<SandboxPool> = cluster.api_of();
            pools.delete("p", &DeleteParams::default()).await.unwrap();
            cluster.start_controller();
        }
        cluster.bring("a", DesiredState::Paused).await;
        tokio::time::sleep(Duration::from_hours(5)).await;
        cluster.bring("a", DesiredState::Running).await;
        assert_eq!(image(&cluster).await.as_deref(), Some("first"));
        let claims = cluster.names::<PersistentVolumeClaim>().await;
        assert_eq!(claims, ["a-workspace"]);
    }
    cluster.bring("a", DesiredState::Paused).await;
    tokio::time::sleep(Duration::from_hours(9)).await;
    assert_eq!(cluster.status("a").await.phase, Phase::Paused);
    tokio::time::sleep(Duration::from_hours(2)).await;
    cluster.wait_for_phase("a", Phase::Stopped).await;
    assert!(cluster.names::<PersistentVolumeClaim>().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changed_spec_is_reported_until_the_next_restart() {
    let cluster = TestCluster::new();
    cluster.running("a").await;
    let needs_restart = |entry: &Entry| {
        let mut all = entry.status.conditions.iter();
        all.any(|c| c.type_ == "RestartNeeded" && c.status == "True" && c.reason == "SpecChanged")
    };
    let change = json!({"spec": {"resourceFactor": 2.0}});
    cluster.patch("a", change).await;
    let changed = cluster.wait("a", needs_restart).await.unwrap();
    assert!(needs_restart(&changed) && changed.is_ready());
    cluster.bring("a", DesiredState::Paused).await;
    let restarted = cluster.bring("a", DesiredState::Running).await;
    assert!(!needs_restart(&restarted), "{:?}", restarted.status);
}
