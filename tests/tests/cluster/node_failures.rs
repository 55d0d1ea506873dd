//! The node itself is out of touch. `second_node.rs` empties one.

use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt as _};
use tokio::time::timeout;

use crate::node_control::{Frozen, StoppedKubelet};
use crate::test_namespace::{TestNamespace, sleeper};

/// The node controller takes a node for lost when it has not been heard of for 20 s (50 s elsewhere). It then has Pods
/// deleted by a taint, but not for certain where no node is left: the test does that in its place.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn silent_node_is_detected_by_readiness_probes() {
    let ns = TestNamespace::new("silent").await;
    for name in ["moves", "stays", "mute"] {
        ns.apply(name, &sleeper());
    }
    for name in ["moves", "stays", "mute"] {
        ns.ready(name).await;
        ns.exec(name, "echo kept > /workspace/file");
        ns.reported(name).await;
    }
    let pod = ns.get::<Pod>("moves").await;
    let kubelet = StoppedKubelet::new();
    let frozen = Frozen::new(&ns.get::<Pod>("mute").await);

    for name in ["moves", "stays"] {
        let silent = ns.until(name, "known to be silent", is_said_silent).await;
        let said = silent.message.unwrap();
        assert!(said.ends_with("; the node is not reporting"), "{said}");
        assert_eq!(silent.phase, Phase::Running);
    }
    let mute = reason(&ns, "mute", Reason::NodeNotReady).await;
    let wanted = "node node is not reporting and the sandbox does not respond";
    assert_eq!(mute, wanted);
    assert_eq!(ns.wait_for_event("mute", "NodeNotReady").await, wanted);

    let deleted = DeleteParams::default();
    ns.pods().delete("moves", &deleted).await.unwrap();
    reason(&ns, "moves", Reason::PodReplaced).await;
    // No kubelet confirms that the container has ended: the Pod is force-deleted.
    let nowhere = reason(&ns, "moves", Reason::Unschedulable).await;
    assert!(nowhere.contains("untolerated taint"), "{nowhere}");
    assert_ne!(ns.get::<Pod>("moves").await.uid(), pod.uid());

    drop((frozen, kubelet));
    let moved = ns.ready_again("moves", 1).await;
    assert_eq!(moved.restarts.reasons, ["Deleted"]);
    for name in ["stays", "mute"] {
        let heard = |s: &SandboxStatus| s.phase == Phase::Running && !is_said_silent(s);
        let heard = ns.until(name, "heard of", heard).await;
        assert_eq!(heard.restarts.count, 0, "{name}");
    }
    for name in ["moves", "stays", "mute"] {
        assert_eq!(ns.exec(name, "cat /workspace/file"), "kept");
    }
    // A kubelet that comes back calls itself not ready for a moment: others wait for that to be over.
    let free = |node: Option<&Node>| {
        node.is_some_and(|n| n.spec.as_ref().is_some_and(|s| s.taints.is_none()))
    };
    let nodes: Api<Node> = Api::all(ns.client.clone());
    let free = await_condition(nodes, "node", free);
    let limit = std::time::Duration::from_mins(1);
    timeout(limit, free).await.unwrap().unwrap();
}

fn is_said_silent(status: &SandboxStatus) -> bool {
    let message = status.message.as_deref().unwrap_or_default();
    message.contains("not reporting")
}

/// Waits until the sandbox is not ready for this reason; what it says.
async fn reason(ns: &TestNamespace, name: &str, reason: Reason) -> String {
    let is = |s: &SandboxStatus| s.phase == Phase::Starting && s.reason == Some(reason);
    let status = ns.until(name, &reason.to_string(), is).await;
    status.message.unwrap()
}
