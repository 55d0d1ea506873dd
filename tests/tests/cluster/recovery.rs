//! Recovery from the loss of a Pod: the sandbox returns with its files, and the status has the reason.

use crds::Sandbox;
use crds::sandbox::{PodStatus, SandboxStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde_json::json;

use crate::node_control::kill_container;
use crate::session;
use crate::test_namespace::{TestNamespace, sleeper};
use tests::cli_tools::kubectl;

/// The sandbox of the runtime API is started again in its Pod, with a file in its workspace and all that its
/// client knows; an Event says so.
#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn killed_container_restarts_in_its_pod() {
    let ns = TestNamespace::of_gateway().await;
    // A second run of a failed test has a sandbox of its own.
    let name = format!("killed-{}", std::process::id());
    let session = session::start(&name).await;
    session.run("echo kept > /workspace/file").await;
    ns.reported(&session.id).await;
    let pod = ns.get::<Pod>(&session.id).await;
    kill_container(&pod);
    let status = ns.ready_again(&session.id, 1).await;
    let reason = "exit code 137";
    assert_eq!(status.restarts.reasons, [reason]);
    assert_eq!(status.pod_status, Some(PodStatus::Ready));
    let said = session.run("cat /workspace/file; echo $GREETING").await;
    assert_eq!(said, "kept\nhello");
    session.assert_same(&session::start(&name).await);
    let info = session.info().await;
    assert_eq!(info["restart_count"], 1, "{info}");
    assert_eq!(info["restart_reasons"], json!([reason]), "{info}");
    let note = "the command terminated (exit code 137) and is being restarted";
    assert_eq!(ns.wait_for_event(&session.id, "Restarted").await, note);
    assert_eq!(ns.get::<Pod>(&session.id).await.uid(), pod.uid());
    session.stop().await;
}

/// Does it once, and is peaceful from then on.
fn once(deed: &str) -> serde_json::Value {
    let script =
        format!("[ -e /workspace/met ] && exec sleep infinity; echo kept > /workspace/met; {deed}");
    json!(["sh", "-c", script])
}

/// Two statuses of one sandbox, before and after an accident.
fn same(first: &SandboxStatus, second: &SandboxStatus) {
    let identity = |s: &SandboxStatus| {
        let s = s.clone();
        (s.runtime_id, s.url, s.pod_name, s.workspace_claim)
    };
    assert_eq!(identity(first), identity(second));
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn container_restarts_after_oom_kill() {
    let ns = TestNamespace::new("memory").await;
    let spec = json!({
        "command": once("sleep 2; exec tail /dev/zero"), "workspace": {"size": "10Mi"},
        "resources": {"limits": {"memory": "48Mi"}},
    });
    ns.apply("greedy", &spec);
    let first = ns.ready("greedy").await;
    let key = ns.token("greedy");
    let second = ns.ready_again("greedy", 1).await;
    assert_eq!(second.restarts.reasons, ["OOMKilled"]);
    same(&first, &second);
    assert_eq!(first.pod_ip, second.pod_ip);
    assert_eq!(ns.token("greedy"), key);
    assert_eq!(ns.exec("greedy", "cat /workspace/met"), "kept");
    let said = ns.wait_for_event("greedy", "Restarted").await;
    let why = "the command terminated (OOMKilled) and is being restarted";
    assert_eq!(said, why);
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pod_is_replaced_after_disk_eviction() {
    let ns = TestNamespace::new("disk").await;
    let deed = "dd if=/dev/zero of=/tmp/big bs=1M count=200 status=none; exec sleep infinity";
    let spec = json!({
        "command": once(deed), "workspace": {"size": "10Mi"},
        "resources": {"limits": {"ephemeral-storage": "150Mi"}},
    });
    ns.apply("full", &spec);
    let first = ns.ready("full").await;
    let key = ns.token("full");
    let second = ns.ready_again("full", 1).await;
    assert_eq!(second.restarts.reasons, ["Evicted"]);
    same(&first, &second);
    assert_eq!(ns.token("full"), key);
    assert_eq!(ns.exec("full", "cat /workspace/met; ls /tmp"), "kept");
    let said = ns.wait_for_event("full", "PodReplaced").await;
    let why = "the Pod failed: Evicted: Pod ephemeral local storage usage exceeds";
    assert!(said.starts_with(why), "{said}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn pause_deletes_the_pod_and_keeps_the_volume() {
    let ns = TestNamespace::new("pause").await;
    ns.apply("p", &sleeper());
    let first = ns.ready("p").await;
    ns.exec("p", "echo kept > /workspace/file");
    let (pod, key) = (ns.get::<Pod>("p").await, ns.token("p"));
    let claim = first.workspace_claim.clone().unwrap();
    let volume = ns.get::<PersistentVolumeClaim>(&claim).await;

    ns.patch("p", json!({"state": "Paused"})).await;
    let paused = ns.paused("p").await;
    assert_eq!(ns.pods().get_opt("p").await.unwrap(), None);
    assert_eq!(paused.pod_status, Some(PodStatus::NotFound));
    assert_eq!((paused.pod_name, paused.pod_ip), (None, None));
    let conditions = paused.conditions.iter();
    let conditions = conditions.map(|c| [&*c.type_, &*c.status, &*c.reason].join(" "));
    let wanted = ["Ready False Requested", "Paused True Requested"];
    assert_eq!(conditions.collect::<Vec<_>>(), wanted);
    for (reason, told) in [
        ("Ready", "the sandbox is ready on node node"),
        (
            "Paused",
            "the Pod is deleted, the workspace is kept: as requested",
        ),
    ] {
        assert_eq!(ns.wait_for_event("p", reason).await, told);
    }
    let told = ns.kubectl("describe sbx p");
    let (_, events) = told.split_once("Events:").unwrap();
    // One line for each thing that happened, from the operator, and no warning.
    assert_eq!(events.trim().lines().count(), 4, "{told}");
    assert!(events.contains("sandbox-operator"), "{told}");
    assert!(!events.contains("Warning"), "{told}");
    let kept = ns.get::<PersistentVolumeClaim>(&claim).await;
    assert_eq!(kept.uid(), volume.uid());
    assert_eq!(kept.status.unwrap().phase.as_deref(), Some("Bound"));

    ns.patch("p", json!({"state": "Running"})).await;
    let second = ns.ready("p").await;
    let next = ns.get::<Pod>("p").await;
    assert_ne!(next.uid(), pod.uid());
    same(&first, &second);
    assert_eq!(second.restarts.count, 0);
    assert_eq!(ns.exec("p", "cat /workspace/file"), "kept");
    assert_eq!(ns.token("p"), key);
    ns.wait_for_event("p", "Resumed").await;

    ns.delete::<Sandbox>("p").await;
    ns.gone(&next).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn namespace_is_deleted_with_its_sandboxes() {
    let ns = TestNamespace::new("namespace").await;
    for name in ["a", "b", "c"] {
        ns.apply(name, &sleeper());
    }
    for name in ["a", "b", "c"] {
        ns.ready(name).await;
    }
    // Their Pods and claims may go before they do, and are not made again.
    let namespace = ns.namespace.as_str();
    kubectl(&["delete", "namespace", namespace, "--timeout=90s"]);
}
