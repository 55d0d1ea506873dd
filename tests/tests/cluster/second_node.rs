//! Where there is another node, sandboxes move to it, with their files. For a cluster with two nodes that share
//! their volumes and give a silent node up soon: `hack/test-cluster DIRECTORY nodes`.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::machine::StoppedKubelet;
use crate::scene::Scene;
use tests::tools::kubectl;

const FIRST: &str = "node";
const SECOND: &str = "node-2";

/// Applies a Sandbox that goes to the first node, and waits until it is ready there. Its Pod has the
/// operator's own tolerations.
async fn on_the_first(scene: &Scene, name: &str) {
    kubectl(&["cordon", SECOND]);
    let spec = json!({
        "command": ["sleep", "infinity"], "workspace": {"size": "10Mi"},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
    });
    scene.apply(name, &spec);
    let status = scene.ready(name).await;
    assert_eq!(status.node_name.as_deref(), Some(FIRST));
    scene.reported(name).await;
    scene.exec(name, "echo kept > /workspace/file");
    kubectl(&["uncordon", SECOND]);
}

/// Waits until it is ready for the second time, on the second node, with its files.
async fn has_moved(scene: &Scene, name: &str) -> Vec<String> {
    let status = scene.ready_again(name, 1).await;
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    scene.reported(name).await;
    assert_eq!(scene.exec(name, "cat /workspace/file"), "kept");
    status.restarts.reasons
}

#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn a_drained_nodes_sandbox_comes_back_on_the_other() {
    let scene = Scene::alone("drained").await;
    on_the_first(&scene, "moved").await;
    let before = (scene.ready("moved").await.url, scene.token("moved"));
    let selector = "--pod-selector=openhands.dev/sandbox=moved";
    let also = ["--delete-emptydir-data", "--timeout=60s"];
    kubectl(&[&["drain", FIRST, selector], &also[..]].concat());
    let reasons = has_moved(&scene, "moved").await;
    assert_eq!(reasons, ["EvictionByEvictionAPI"]);
    let after = (scene.ready("moved").await.url, scene.token("moved"));
    assert_eq!(before, after);
    kubectl(&["uncordon", FIRST]);
}

/// Kubernetes deletes the Pods of a lost node, and nobody there confirms it: the operator removes them.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn a_lost_nodes_sandbox_comes_back_on_the_other() {
    let scene = Scene::alone("lost").await;
    on_the_first(&scene, "moved").await;
    let pod = scene.get::<Pod>("moved").await;
    let kubelet = StoppedKubelet::new();
    scene.gone(&pod).await;
    let reasons = has_moved(&scene, "moved").await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let now = scene.get::<Pod>("moved").await;
    assert_ne!(now.uid(), pod.uid());
    let restarts = scene.ready("moved").await.restarts;
    drop(kubelet);
    // The node that comes back takes nothing away.
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "node/node",
        "--timeout=60s",
    ]);
    let status = scene.ready("moved").await;
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    assert_eq!(status.restarts, restarts);
    assert_eq!(scene.get::<Pod>("moved").await.uid(), now.uid());
}
