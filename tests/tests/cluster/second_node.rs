//! Sandboxes move to another node with their files. For a cluster with two nodes that share their
//! volumes and a short node grace period: `hack/test-cluster nodes`.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::node_control::StoppedKubelet;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::kubectl;

const FIRST: &str = "node";
const SECOND: &str = "node-2";

/// Applies a Sandbox that goes to the first node, and waits until it is ready there. Its Pod has the
/// operator's own tolerations.
async fn on_the_first(ns: &TestNamespace, name: &str) {
    kubectl(&["cordon", SECOND]);
    let spec = json!({
        "command": ["sleep", "infinity"], "workspace": {"size": "10Mi"},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
    });
    ns.apply(name, &spec);
    let status = ns.ready(name).await;
    assert_eq!(status.node_name.as_deref(), Some(FIRST));
    ns.reported(name).await;
    ns.exec(name, "echo kept > /workspace/file");
    kubectl(&["uncordon", SECOND]);
}

/// Waits until it is ready for the second time, on the second node, with its files.
async fn has_moved(ns: &TestNamespace, name: &str) -> Vec<String> {
    let status = ns.ready_again(name, 1).await;
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    ns.reported(name).await;
    assert_eq!(ns.exec(name, "cat /workspace/file"), "kept");
    status.restarts.reasons
}

#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn sandbox_of_drained_node_restarts_on_the_other() {
    let ns = TestNamespace::new("drained").await;
    on_the_first(&ns, "moved").await;
    let before = (ns.ready("moved").await.url, ns.token("moved"));
    let selector = "--pod-selector=openhands.dev/sandbox=moved";
    let also = ["--delete-emptydir-data", "--timeout=60s"];
    kubectl(&[&["drain", FIRST, selector], &also[..]].concat());
    let reasons = has_moved(&ns, "moved").await;
    assert_eq!(reasons, ["EvictionByEvictionAPI"]);
    let said = ns.wait_for_event("moved", "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    let after = (ns.ready("moved").await.url, ns.token("moved"));
    assert_eq!(before, after);
    kubectl(&["uncordon", FIRST]);
}

/// Kubernetes deletes the Pods of a lost node, whose kubelet cannot confirm: the operator removes them.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn sandbox_of_lost_node_restarts_on_the_other() {
    let ns = TestNamespace::new("lost").await;
    on_the_first(&ns, "moved").await;
    let pod = ns.get::<Pod>("moved").await;
    let kubelet = StoppedKubelet::new();
    ns.gone(&pod).await;
    let reasons = has_moved(&ns, "moved").await;
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    let now = ns.get::<Pod>("moved").await;
    assert_ne!(now.uid(), pod.uid());
    let restarts = ns.ready("moved").await.restarts;
    drop(kubelet);
    // The node that comes back takes nothing away.
    let ready = "--for=condition=Ready";
    kubectl(&["wait", ready, "node/node", "--timeout=60s"]);
    let status = ns.ready("moved").await;
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    assert_eq!(status.restarts, restarts);
    assert_eq!(ns.get::<Pod>("moved").await.uid(), now.uid());
}
