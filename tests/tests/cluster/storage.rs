//! Volumes of a storage class that waits to see on which node they are needed.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use serde_json::json;

use crate::command::apply;
use crate::scene::Scene;
use tests::tools::kubectl;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_volume_may_wait_for_its_first_consumer() {
    let scene = Scene::new("storage").await;
    let class = format!("late-{}", scene.namespace);
    apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
        "provisioner": "kubernetes.io/host-path", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    let workspace = json!({"size": "10Mi", "storageClassName": class});
    scene.apply(
        "s",
        &json!({"command": ["sleep", "infinity"], "workspace": workspace}),
    );
    let status = scene.ready("s").await;
    let claim = scene
        .get::<PersistentVolumeClaim>(&status.workspace_claim.unwrap())
        .await;
    let node = "volume.kubernetes.io/selected-node";
    assert_eq!(claim.annotations()[node], "node");
    scene.exec("s", "echo kept > /workspace/file");
    // Waiting is how such classes work: nothing to warn of.
    assert_eq!(scene.said("s", "Unschedulable").await, "");
    kubectl(&["delete", "storageclass", &class]);
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_storage_class_that_is_not_there_is_named() {
    let scene = Scene::new("noclass").await;
    let workspace = json!({"size": "10Mi", "storageClassName": "absent"});
    scene.apply(
        "s",
        &json!({"command": ["sleep", "infinity"], "workspace": workspace}),
    );
    let waits = scene
        .until("s", "without a volume", |s| {
            s.reason == Some(crds::conditions::Reason::Unschedulable)
        })
        .await;
    let why = waits.message.unwrap();
    let wanted = "(claim s-workspace, storage class absent)";
    assert!(why.ends_with(wanted), "{why}");
    assert!(scene.saw("s", "Unschedulable").await.contains(wanted));
}
