//! A sandbox keeps the revision of its pool that it was made from.

use std::time::Duration;

use crds::SandboxPool;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tests::test_cluster::TestCluster;

async fn put_pool(cluster: &TestCluster, spec: &Value) {
    let pool = json!({"apiVersion": "openhands.dev/v1alpha1", "kind": "SandboxPool",
        "metadata": {"name": "p"}, "spec": spec});
    let pools: Api<SandboxPool> = cluster.api_of();
    let params = PatchParams::apply("test").force();
    pools
        .patch("p", &params, &Patch::Apply(&pool))
        .await
        .unwrap();
}

async fn image(cluster: &TestCluster) -> Option<String> {
    let pod = cluster.api_of::<Pod>().get("a").await.unwrap();
    pod.spec.unwrap().containers[0].image.clone()
}

#[tokio::test(start_paused = true)]
async fn changed_and_deleted_pool_leaves_its_sandboxes_alone() {
    let mut cluster = TestCluster::new();
    let lifecycle = json!({"deletePausedAfter": "10h"});
    let template = json!({"image": "first", "workspace": {"size": "1Gi"}});
    put_pool(
        &cluster,
        &json!({"template": template, "lifecycle": lifecycle}),
    )
    .await;
    cluster
        .create_with("a", &json!({"pool": "p", "image": null, "workspace": null}))
        .await;
    cluster.wait_for_phase("a", Phase::Running).await;
    assert_eq!(cluster.status("a").await.pool.unwrap().name, "p");

    let changed =
        json!({"template": {"image": "second"}, "lifecycle": {"deletePausedAfter": "1s"}});
    put_pool(&cluster, &changed).await;
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
        assert_eq!(
            cluster.names::<PersistentVolumeClaim>().await,
            ["a-workspace"]
        );
    }
    cluster.bring("a", DesiredState::Paused).await;
    tokio::time::sleep(Duration::from_hours(9)).await;
    assert_eq!(cluster.status("a").await.phase, Phase::Paused);
    tokio::time::sleep(Duration::from_hours(2)).await;
    cluster.wait_for_phase("a", Phase::Stopped).await;
    assert!(cluster.names::<PersistentVolumeClaim>().await.is_empty());
}
