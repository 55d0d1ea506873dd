//! Recovery from the loss of a Pod: the sandbox returns with its files, and the status has the reason.

use crds::Sandbox;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use serde_json::json;
use tests::session::Session;

use crate::node_control::kill_container;
use crate::session;
use crate::test_namespace::TestNamespace;
use tests::cli_tools::kubectl;

/// A sandbox of the runtime API with a file in its workspace.
async fn begin(name: &str) -> (TestNamespace, Session, Pod) {
    let ns = TestNamespace::of_gateway().await;
    let session = session::start(name).await;
    session.run("echo kept > /workspace/file").await;
    ns.reported(&session.id).await;
    let pod = ns.get::<Pod>(&session.id).await;
    (ns, session, pod)
}

/// Waits until the sandbox has been started again for this reason, with all that its client knows.
async fn comes_back(ns: &TestNamespace, session: &Session, name: &str, reason: &str) {
    let status = ns.ready_again(&session.id, 1).await;
    assert_eq!(status.restarts.reasons, [reason]);
    assert_eq!(status.pod_status, Some(PodStatus::Ready));
    let said = session.run("cat /workspace/file; echo $GREETING").await;
    assert_eq!(said, "kept\nhello");
    let again = session::start(name).await;
    assert_eq!(
        (&again.id, &again.url, &again.key),
        (&session.id, &session.url, &session.key)
    );
    let info = session.info().await;
    assert_eq!(info["restart_count"], 1, "{info}");
    assert_eq!(info["restart_reasons"], json!([reason]), "{info}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_deleted_pod_is_replaced() {
    let (ns, session, pod) = begin("deleted").await;
    let deleted = DeleteParams::default();
    ns.pods().delete(&session.id, &deleted).await.unwrap();
    ns.gone(&pod).await;
    comes_back(&ns, &session, "deleted", "Deleted").await;
    let said = ns.wait_for_event(&session.id, "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted");
    session.change_state("stop").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn an_evicted_pod_is_replaced() {
    let (ns, session, pod) = begin("evicted").await;
    let evicted = EvictParams::default();
    ns.pods().evict(&session.id, &evicted).await.unwrap();
    ns.gone(&pod).await;
    comes_back(&ns, &session, "evicted", "EvictionByEvictionAPI").await;
    let said = ns.wait_for_event(&session.id, "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    session.change_state("stop").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_killed_container_is_started_again_in_its_pod() {
    let (ns, session, pod) = begin("killed").await;
    kill_container(&pod);
    comes_back(&ns, &session, "killed", "exit code 137").await;
    assert_eq!(ns.get::<Pod>(&session.id).await.uid(), pod.uid());
    let said = ns.wait_for_event(&session.id, "Restarted").await;
    assert_eq!(
        said,
        "the command terminated (exit code 137) and is being restarted"
    );
    session.change_state("stop").await;
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
        let SandboxStatus {
            runtime_id,
            url,
            pod_name,
            workspace_claim,
            ..
        } = s.clone();
        (runtime_id, url, pod_name, workspace_claim)
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
    assert_eq!(
        said,
        "the command terminated (OOMKilled) and is being restarted"
    );
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
async fn a_pause_frees_the_pod_and_keeps_the_volume() {
    let ns = TestNamespace::new("pause").await;
    let sleep = json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    ns.apply("p", &sleep);
    let first = ns.ready("p").await;
    ns.exec("p", "echo kept > /workspace/file");
    let (pod, key) = (ns.get::<Pod>("p").await, ns.token("p"));
    let claim = first.workspace_claim.clone().unwrap();
    let volume = ns.get::<PersistentVolumeClaim>(&claim).await;

    ns.patch("p", json!({"state": "Paused"})).await;
    let paused = ns.until("p", "paused", |s| s.phase == Phase::Paused).await;
    assert_eq!(ns.pods().get_opt("p").await.unwrap(), None);
    assert_eq!(paused.pod_status, Some(PodStatus::NotFound));
    assert_eq!((paused.pod_name, paused.pod_ip), (None, None));
    let conditions: Vec<_> = paused.conditions.iter().collect();
    let conditions = conditions
        .iter()
        .map(|c| (&*c.type_, &*c.status, &*c.reason));
    let wanted = [
        ("Ready", "False", "Requested"),
        ("Paused", "True", "Requested"),
    ];
    assert_eq!(conditions.collect::<Vec<_>>(), wanted);
    let said = ns.wait_for_event("p", "Paused").await;
    let wanted = "the Pod is deleted, the workspace is kept: as requested";
    assert_eq!(said, wanted);
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
async fn a_namespace_goes_with_all_its_sandboxes() {
    let ns = TestNamespace::new("namespace").await;
    let sleep = json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    for name in ["a", "b", "c"] {
        ns.apply(name, &sleep);
    }
    for name in ["a", "b", "c"] {
        ns.ready(name).await;
    }
    // Their Pods and claims may go before they do, and are not made again.
    let namespace = ns.namespace.as_str();
    kubectl(&["delete", "namespace", namespace, "--timeout=90s"]);
}
