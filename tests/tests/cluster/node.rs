//! The node itself: emptied, and out of touch.

use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::timeout;

use crate::machine::{Frozen, StoppedKubelet};
use crate::scene::Scene;
use tests::tools::kubectl;

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
    let why = reason(&scene, "moved", Reason::Unschedulable).await;
    assert!(why.contains("1 node(s) were unschedulable"), "{why}");
    kubectl(&["uncordon", "node"]);
    let status = scene.ready_again("moved", 1).await;
    assert_eq!(status.restarts.reasons, ["EvictionByEvictionAPI"]);
    assert_eq!(scene.exec("moved", "cat /workspace/file"), "kept");
    let said = scene.saw("moved", "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    scene.saw("moved", "Unschedulable").await;
}

/// The node controller takes a node for lost when it has not been heard of for 20 s (50 s elsewhere). It then has Pods
/// deleted by a taint, but not for certain where no node is left: the test does that in its place.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_silent_node_is_told_by_what_its_sandboxes_answer() {
    let scene = Scene::alone("silent").await;
    for name in ["moves", "stays", "mute"] {
        scene.apply(name, &sleeper());
    }
    for name in ["moves", "stays", "mute"] {
        scene.ready(name).await;
        scene.exec(name, "echo kept > /workspace/file");
        scene.reported(name).await;
    }
    let pod = scene.get::<Pod>("moves").await;
    let kubelet = StoppedKubelet::new();
    let frozen = Frozen::new(&scene.get::<Pod>("mute").await);

    for name in ["moves", "stays"] {
        let silent = scene
            .until(name, "known to be silent", |s| s.message.is_some())
            .await;
        let said = silent.message.as_deref();
        assert_eq!(said, Some("its node has stopped reporting"));
        assert_eq!(silent.phase, Phase::Running);
    }
    let mute = reason(&scene, "mute", Reason::NodeNotReady).await;
    let wanted = "node node has stopped reporting, and the sandbox does not answer";
    assert_eq!(mute, wanted);
    assert_eq!(scene.saw("mute", "NodeNotReady").await, wanted);

    let deleted = DeleteParams::default();
    scene.pods().delete("moves", &deleted).await.unwrap();
    reason(&scene, "moves", Reason::PodReplaced).await;
    // Nobody confirms that the container has ended: the Pod is removed by force.
    let nowhere = reason(&scene, "moves", Reason::Unschedulable).await;
    assert!(nowhere.contains("untolerated taint"), "{nowhere}");
    assert_ne!(scene.get::<Pod>("moves").await.uid(), pod.uid());

    drop((frozen, kubelet));
    let moved = scene.ready_again("moves", 1).await;
    assert_eq!(moved.restarts.reasons, ["Deleted"]);
    for name in ["stays", "mute"] {
        let heard = scene
            .until(name, "heard of", |s| {
                s.phase == Phase::Running && s.message.is_none()
            })
            .await;
        assert_eq!(heard.restarts.count, 0, "{name}");
    }
    for name in ["moves", "stays", "mute"] {
        assert_eq!(scene.exec(name, "cat /workspace/file"), "kept");
    }
    // A kubelet that comes back calls itself not ready for a moment: others wait for that to be over.
    let free = |node: Option<&Node>| {
        node.is_some_and(|n| n.spec.as_ref().is_some_and(|s| s.taints.is_none()))
    };
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let free = await_condition(nodes, "node", free);
    let limit = std::time::Duration::from_mins(1);
    timeout(limit, free).await.unwrap().unwrap();
}

/// Waits until the sandbox is not ready for this reason; what it says.
async fn reason(scene: &Scene, name: &str, reason: Reason) -> String {
    let is = |s: &SandboxStatus| s.phase == Phase::Starting && s.reason == Some(reason);
    let status = scene.until(name, reason.as_str(), is).await;
    status.message.unwrap()
}
