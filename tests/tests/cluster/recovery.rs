//! Whatever happens to its Pod, a sandbox comes back by itself as what it was, and says why it had to.

use crds::Sandbox;
use crds::sandbox::{Phase, PodStatus, SandboxStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, EvictParams};
use serde_json::json;
use tests::session::Session;

use crate::machine::kill_container;
use crate::scene::Scene;
use crate::session;
use tests::tools::kubectl;

/// A sandbox of the runtime API with a file in its workspace.
async fn begin(name: &str) -> (Scene, Session, Pod) {
    let scene = Scene::of_gateway().await;
    let session = session::start(name).await;
    session.run("echo kept > /workspace/file").await;
    scene.reported(&session.id).await;
    let pod = scene.get::<Pod>(&session.id).await;
    (scene, session, pod)
}

/// Waits until the sandbox has been started again for this reason, with all that its client knows.
async fn comes_back(scene: &Scene, session: &Session, name: &str, reason: &str) {
    let status = scene.ready_again(&session.id, 1).await;
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
    let (scene, session, pod) = begin("deleted").await;
    let deleted = DeleteParams::default();
    scene.pods().delete(&session.id, &deleted).await.unwrap();
    scene.gone(&pod).await;
    comes_back(&scene, &session, "deleted", "Deleted").await;
    let said = scene.saw(&session.id, "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted");
    session.ask("stop").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn an_evicted_pod_is_replaced() {
    let (scene, session, pod) = begin("evicted").await;
    let evicted = EvictParams::default();
    scene.pods().evict(&session.id, &evicted).await.unwrap();
    scene.gone(&pod).await;
    comes_back(&scene, &session, "evicted", "EvictionByEvictionAPI").await;
    let said = scene.saw(&session.id, "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    session.ask("stop").await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_killed_container_is_started_again_in_its_pod() {
    let (scene, session, pod) = begin("killed").await;
    kill_container(&pod);
    comes_back(&scene, &session, "killed", "exit code 137").await;
    assert_eq!(scene.get::<Pod>(&session.id).await.uid(), pod.uid());
    let said = scene.saw(&session.id, "Restarted").await;
    assert_eq!(
        said,
        "the command ended (exit code 137) and is started again"
    );
    session.ask("stop").await;
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
async fn who_takes_too_much_memory_is_started_again() {
    let scene = Scene::new("memory").await;
    let spec = json!({
        "command": once("sleep 2; exec tail /dev/zero"), "workspace": {"size": "10Mi"},
        "resources": {"limits": {"memory": "48Mi"}},
    });
    scene.apply("greedy", &spec);
    let first = scene.ready("greedy").await;
    let key = scene.token("greedy");
    let second = scene.ready_again("greedy", 1).await;
    assert_eq!(second.restarts.reasons, ["OOMKilled"]);
    same(&first, &second);
    assert_eq!(first.pod_ip, second.pod_ip);
    assert_eq!(scene.token("greedy"), key);
    assert_eq!(scene.exec("greedy", "cat /workspace/met"), "kept");
    let said = scene.saw("greedy", "Restarted").await;
    assert_eq!(said, "the command ended (OOMKilled) and is started again");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn who_fills_the_disk_is_evicted_by_the_kubelet_and_replaced() {
    let scene = Scene::new("disk").await;
    let deed = "dd if=/dev/zero of=/tmp/big bs=1M count=200 status=none; exec sleep infinity";
    let spec = json!({
        "command": once(deed), "workspace": {"size": "10Mi"},
        "resources": {"limits": {"ephemeral-storage": "150Mi"}},
    });
    scene.apply("full", &spec);
    let first = scene.ready("full").await;
    let key = scene.token("full");
    let second = scene.ready_again("full", 1).await;
    assert_eq!(second.restarts.reasons, ["Evicted"]);
    same(&first, &second);
    assert_eq!(scene.token("full"), key);
    assert_eq!(scene.exec("full", "cat /workspace/met; ls /tmp"), "kept");
    let said = scene.saw("full", "PodReplaced").await;
    let why = "the Pod failed: Evicted: Pod ephemeral local storage usage exceeds";
    assert!(said.starts_with(why), "{said}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_pause_frees_the_pod_and_keeps_the_volume() {
    let scene = Scene::new("pause").await;
    let sleep = json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    scene.apply("p", &sleep);
    let first = scene.ready("p").await;
    scene.exec("p", "echo kept > /workspace/file");
    let (pod, key) = (scene.get::<Pod>("p").await, scene.token("p"));
    let claim = first.workspace_claim.clone().unwrap();
    let volume = scene.get::<PersistentVolumeClaim>(&claim).await;

    scene.patch("p", json!({"state": "Paused"})).await;
    let paused = scene
        .until("p", "paused", |s| s.phase == Phase::Paused)
        .await;
    assert_eq!(scene.pods().get_opt("p").await.unwrap(), None);
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
    let said = scene.saw("p", "Paused").await;
    let wanted = "compute is released, the workspace is kept: as requested";
    assert_eq!(said, wanted);
    let kept = scene.get::<PersistentVolumeClaim>(&claim).await;
    assert_eq!(kept.uid(), volume.uid());
    assert_eq!(kept.status.unwrap().phase.as_deref(), Some("Bound"));

    scene.patch("p", json!({"state": "Running"})).await;
    let second = scene.ready("p").await;
    let next = scene.get::<Pod>("p").await;
    assert_ne!(next.uid(), pod.uid());
    same(&first, &second);
    assert_eq!(second.restarts.count, 0);
    assert_eq!(scene.exec("p", "cat /workspace/file"), "kept");
    assert_eq!(scene.token("p"), key);
    scene.saw("p", "Resumed").await;

    scene.delete::<Sandbox>("p").await;
    scene.gone(&next).await;
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn a_namespace_goes_with_all_its_sandboxes() {
    let scene = Scene::new("namespace").await;
    let sleep = json!({"command": ["sleep", "infinity"], "workspace": {"size": "10Mi"}});
    for name in ["a", "b", "c"] {
        scene.apply(name, &sleep);
    }
    for name in ["a", "b", "c"] {
        scene.ready(name).await;
    }
    // Their Pods and claims may go before they do, and are not made again.
    let namespace = scene.namespace.as_str();
    kubectl(&["delete", "namespace", namespace, "--timeout=90s"]);
}
