//! Volumes of a storage class that waits to see on which node they are needed.

use crds::conditions::Reason;
use crds::sandbox::SandboxStatus;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt as _;
use serde_json::json;

use crate::test_namespace::TestNamespace;
use tests::cli_tools::{apply, kubectl};

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn volume_may_wait_for_its_first_consumer() {
    let ns = TestNamespace::new("storage").await;
    let class = format!("late-{}", ns.namespace);
    let late = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
        "provisioner": "kubernetes.io/host-path", "volumeBindingMode": "WaitForFirstConsumer",
    });
    apply(&late.to_string(), &[]);
    let workspace = json!({"size": "10Mi", "storageClassName": class});
    let spec = json!({"command": ["sleep", "infinity"], "workspace": workspace});
    ns.apply("s", &spec);
    let status = ns.ready("s").await;
    let claim = status.workspace_claim.unwrap();
    let claim = ns.get::<PersistentVolumeClaim>(&claim).await;
    let node = "volume.kubernetes.io/selected-node";
    assert_eq!(claim.annotations()[node], "node");
    ns.exec("s", "echo kept > /workspace/file");
    // Waiting is how such classes work: nothing to warn of.
    assert_eq!(ns.event_notes("s", "Unschedulable").await, "");
    kubectl(&["delete", "storageclass", &class]);
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn missing_storage_class_is_named() {
    let ns = TestNamespace::new("noclass").await;
    let workspace = json!({"size": "10Mi", "storageClassName": "absent"});
    let spec = json!({"command": ["sleep", "infinity"], "workspace": workspace});
    ns.apply("s", &spec);
    let waits = |s: &SandboxStatus| s.reason == Some(Reason::Unschedulable);
    let waits = ns.until("s", "without a volume", waits).await;
    let why = waits.message.unwrap();
    let wanted = "(PVC s-workspace, storage class absent)";
    assert!(why.ends_with(wanted), "{why}");
    let said = ns.wait_for_event("s", "Unschedulable").await;
    assert!(said.contains(wanted), "{said}");
}
