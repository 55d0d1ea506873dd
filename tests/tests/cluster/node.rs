//! The node itself: emptied, and out of touch.

use crds::Sandbox;
use crds::conditions::Reason;
use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::installation::kubectl;
use crate::machine::StoppedKubelet;
use crate::scene::Scene;

fn sleeper() -> serde_json::Value {
    json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}})
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_drain_moves_the_sandbox() {
    let scene = Scene::alone("drain").await;
    scene.apply("moved", &sleeper());
    scene.ready("moved").await;
    scene.exec("moved", "echo kept > /workspace/file");
    let selector = "--pod-selector=openhands.dev/sandbox=moved";
    let also = ["--delete-emptydir-data", "--timeout=60s"];
    // Without `--force`: it is for Pods that nobody would make again.
    kubectl(&[&["drain", "node", selector], &also[..]].concat());
    let nowhere = scene
        .until("moved", "waiting for a node", |s| {
            s.reason == Some(Reason::Unschedulable)
        })
        .await;
    assert_eq!(nowhere.phase, Phase::Starting);
    let why = nowhere.message.unwrap();
    assert!(why.contains("1 node(s) were unschedulable"), "{why}");
    kubectl(&["uncordon", "node"]);
    let status = scene.ready_again("moved", 1).await;
    assert_eq!(status.restarts.reasons, ["EvictionByEvictionAPI"]);
    assert_eq!(scene.exec("moved", "cat /workspace/file"), "kept");
    let said = scene.saw("moved", "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    scene.saw("moved", "Unschedulable").await;
}

/// The node controller takes a node for lost when it has not been heard of for 50 s. It then has Pods
/// deleted by a taint, but not for certain where no node is left: the test does that in its place.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_silent_node_is_mentioned_and_its_pod_is_replaced() {
    let scene = Scene::alone("silent").await;
    scene.apply("s", &sleeper());
    scene.apply("stays", &sleeper());
    for name in ["s", "stays"] {
        scene.ready(name).await;
        scene.exec(name, "echo kept > /workspace/file");
        scene.reported(name).await;
    }
    let pod = scene.get::<Pod>("s").await;

    let kubelet = StoppedKubelet::new();
    for name in ["s", "stays"] {
        let silent = scene
            .until(name, "known to be on a silent node", |s| {
                s.message.is_some()
            })
            .await;
        assert_eq!(silent.phase, Phase::Running);
        let said = silent.message.as_deref();
        assert_eq!(said, Some("its node has stopped reporting"));
    }
    let deleted = DeleteParams::default();
    scene.pods().delete("s", &deleted).await.unwrap();
    scene
        .until("s", "losing its Pod", |s| {
            s.reason == Some(Reason::PodReplaced)
        })
        .await;
    // Nobody confirms that the container has ended: the Pod is removed by force.
    let nowhere = scene
        .until("s", "waiting for a node", |s| {
            s.reason == Some(Reason::Unschedulable)
        })
        .await;
    let why = nowhere.message.unwrap();
    assert!(why.contains("untolerated taint"), "{why}");
    assert_ne!(scene.get::<Pod>("s").await.uid(), pod.uid());

    drop(kubelet);
    let status = scene.ready_again("s", 1).await;
    assert_eq!(status.restarts.reasons, ["Deleted"]);
    assert_eq!(scene.exec("s", "cat /workspace/file"), "kept");
    let stays = scene
        .until("stays", "heard of", |s| s.message.is_none())
        .await;
    assert_eq!((stays.phase, stays.restarts.count), (Phase::Running, 0));
    let node: Node = Api::all(scene.client.clone()).get("node").await.unwrap();
    assert_eq!(node.spec.unwrap().taints, None);
    scene.delete::<Sandbox>("s").await;
}
