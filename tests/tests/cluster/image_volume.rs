//! The executor as an image volume or copied, as a controller with `--executor-injection auto` finds
//! out. `hack/test-cluster image_volume` has a node whose containerd can mount images, and a cordoned
//! one whose cannot; `hack/test-cluster cluster` has an API server that drops such volumes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod, PodSpec};
use kube::api::ListParams;
use serde_json::json;

use crate::test_namespace::TestNamespace;
use tests::cli_tools::kubectl;

const PROBE: &str = "sandbox-executor-probe";

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

/// Waits until the Pod of the probe has run and is gone. It is in the controller's namespace.
async fn wait_for_probe(ns: &TestNamespace) {
    let selector = format!("involvedObject.name={PROBE},reason=Started");
    let params = ListParams::default().fields(&selector);
    let has_run = async || {
        !ns.api::<Event>()
            .list(&params)
            .await
            .unwrap()
            .items
            .is_empty()
    };
    for _ in 0..600 {
        if has_run().await && !has_probe(ns).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{PROBE} does not end");
}

async fn has_probe(ns: &TestNamespace) -> bool {
    ns.pods().get_opt(PROBE).await.unwrap().is_some()
}

fn mounts_image(pod: &PodSpec) -> bool {
    pod.volumes.iter().flatten().any(|v| v.image.is_some())
}

#[tokio::test]
#[ignore = "needs a cluster with containerd 2: make test-cluster"]
async fn image_volume_is_used_until_a_node_cannot_mount_it() {
    wait_for_probe(&TestNamespace::of_gateway().await).await;
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

#[tokio::test]
#[ignore = "needs a cluster: make test-cluster"]
async fn executor_is_copied_when_the_api_server_drops_image_volumes() {
    let ns = TestNamespace::new("copied").await;
    assert!(!mounts_image(&pod_on(&ns, "copies", "node").await));
    assert!(!has_probe(&TestNamespace::of_gateway().await).await);
}
