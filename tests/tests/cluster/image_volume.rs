//! The executor as an image volume: with a node whose containerd can mount images, a second one whose
//! cannot and is cordoned, and a controller with `--executor-injection auto`: `hack/test-cluster
//! image_volume`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod, PodSpec};
use kube::api::ListParams;
use serde_json::json;

use crate::test_namespace::TestNamespace;
use tests::cli_tools::kubectl;

/// Applies a Sandbox for this node and waits until it is ready. Returns the spec of its Pod.
async fn pod_on(ns: &TestNamespace, name: &str, node: &str) -> PodSpec {
    let selector = json!({"kubernetes.io/hostname": node});
    let spec = json!({
        "command": ["sleep", "infinity"], "podTemplate": {"spec": {"nodeSelector": selector}},
    });
    ns.apply(name, &spec);
    let status = ns.ready(name).await;
    assert_eq!(status.node_name.as_deref(), Some(node));
    ns.get::<Pod>(name).await.spec.unwrap()
}

/// Waits until the Pod of the probe has been there and is gone. It is in the controller's namespace.
async fn wait_for_probe() {
    let ns = TestNamespace::of_gateway().await;
    let name = "sandbox-executor-probe";
    let params =
        ListParams::default().fields(&format!("involvedObject.name={name},reason=Started"));
    while ns
        .api::<Event>()
        .list(&params)
        .await
        .unwrap()
        .items
        .is_empty()
        || ns.pods().get_opt(name).await.unwrap().is_some()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn mounts_image(pod: &PodSpec) -> bool {
    pod.volumes.iter().flatten().any(|v| v.image.is_some())
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn image_volume_is_used_until_a_node_cannot_mount_it() {
    wait_for_probe().await;
    let ns = TestNamespace::new("volume").await;
    let pod = pod_on(&ns, "mounts", "node").await;
    assert!(mounts_image(&pod) && pod.init_containers.is_none());
    assert_eq!(ns.exec("mounts", "echo runs"), "runs");

    kubectl(&["uncordon", "node-2"]);
    let pod = pod_on(&ns, "copies", "node-2").await;
    assert!(!mounts_image(&pod) && pod.init_containers.is_some());
    let restarts = ns.ready("copies").await.restarts;
    assert_eq!(restarts.reasons, ["ExecutorNotMounted"]);
    assert!(!mounts_image(&pod_on(&ns, "later", "node").await));
}
