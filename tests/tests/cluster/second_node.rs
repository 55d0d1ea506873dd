//! Sandboxes move to another node with their files. For a cluster with two nodes that share their
//! volumes and a short node grace period: `hack/test-cluster nodes`.

mod drain;

use crds::conditions::Reason;
use crds::contract::persistence::PersistenceLevel;
use crds::sandbox::SandboxStatus;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::beats;
use crate::node_control::{HeldCriu, StoppedKubelet, kill_container, supervisor, volume};
use crate::test_namespace::TestNamespace;
use tests::cli_tools::{kubectl, kubectl_words, run, until};

const FIRST: &str = "node";
const SECOND: &str = "node-2";

/// A node that takes no new Pods until this is dropped.
struct Cordoned(&'static str);

impl Cordoned {
    fn new(node: &'static str) -> Self {
        kubectl(&["cordon", node]);
        Self(node)
    }
}

impl Drop for Cordoned {
    fn drop(&mut self) {
        run("kubectl", &["uncordon", self.0]);
    }
}

/// Applies a Sandbox that goes to the first node, and waits until it is ready there. Its Pod has the
/// operator's own tolerations.
async fn on_the_first(ns: &TestNamespace, name: &str) {
    let cordoned = Cordoned::new(SECOND);
    let spec = json!({
        "command": ["sleep", "infinity"], "workspace": {"size": "10Mi"},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
    });
    ns.apply(name, &spec);
    let status = ns.ready(name).await;
    assert_eq!(status.node_name.as_deref(), Some(FIRST));
    ns.reported(name).await;
    ns.exec(name, "echo kept > /workspace/file");
    drop(cordoned);
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
    let _drained = drain(selector);
    let reasons = has_moved(&ns, "moved").await;
    assert_eq!(reasons, ["EvictionByEvictionAPI"]);
    let said = ns.wait_for_event("moved", "PodReplaced").await;
    assert_eq!(said, "the Pod is being deleted: EvictionByEvictionAPI");
    let after = (ns.ready("moved").await.url, ns.token("moved"));
    assert_eq!(before, after);
}

/// Drains the first node of the Pods of a sandbox.
fn drain(selector: &str) -> Cordoned {
    // A drain that fails has cordoned it as well.
    let cordoned = Cordoned::new(FIRST);
    let also = ["--delete-emptydir-data", "--timeout=60s"];
    kubectl(&[&["drain", FIRST, selector], &also[..]].concat());
    cordoned
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

/// Starts a sandbox of level `Memory` on the first node. Returns its incarnation.
async fn counts_on_the_first(ns: &TestNamespace, name: &str) -> u32 {
    let _cordoned = Cordoned::new(SECOND);
    let status = beats::start(ns, name).await;
    assert_eq!(status.node_name.as_deref(), Some(FIRST));
    status.incarnation
}

/// Starts such a sandbox, whose processes have gone on there once.
async fn resumed_on_the_first(ns: &TestNamespace, name: &str) -> u32 {
    let incarnation = counts_on_the_first(ns, name).await;
    let _cordoned = Cordoned::new(SECOND);
    beats::pause(ns, name).await;
    ns.patch(name, json!({"state": "Running"})).await;
    beats::assert_goes_on(ns, name, incarnation).await;
    incarnation
}

/// A sandbox whose saved processes have run before is ready on the second node with new ones, with
/// files of the workspace and those of the last pause. The next pause keeps its processes.
async fn assert_begins_anew(
    ns: &TestNamespace,
    name: &str,
    status: SandboxStatus,
    incarnation: u32,
) {
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    assert_eq!(status.incarnation, incarnation + 1);
    let restored = status.restored.unwrap();
    assert_eq!(restored.level, PersistenceLevel::Root, "{restored:?}");
    let reason =
        "processes did not go on: an earlier start has used them, and they go on once only";
    assert_eq!(restored.reason.as_deref(), Some(reason));
    ns.reported(name).await;
    let runs = beats::wait_for_beat(ns, name).await;
    assert_eq!(runs.len(), 2, "{runs:?}");
    beats::assert_files(ns, name);
    let persisted = beats::pause(ns, name).await.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    ns.patch(name, json!({"state": "Running"})).await;
    let status = ns.ready(name).await;
    assert_eq!(status.restored.unwrap().level, PersistenceLevel::Memory);
    assert_eq!(status.incarnation, incarnation + 1);
    ns.reported(name).await;
    assert_eq!(beats::wait_for_beat(ns, name).await.len(), 2);
}

/// Waits until no Pod is scheduled to the first node, which is silent.
fn wait_until_lost() {
    let taints = "get node node -o jsonpath={.spec.taints[*].key}";
    until("the node is lost", || {
        kubectl_words(taints).contains("node.kubernetes.io/unreachable")
    });
}

/// The node reports again, and the sandbox stays where it is.
async fn assert_stays(ns: &TestNamespace, name: &str, kubelet: StoppedKubelet) {
    let pod = ns.get::<Pod>(name).await;
    drop(kubelet);
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "node/node",
        "--timeout=60s",
    ]);
    let status = ns.ready(name).await;
    assert_eq!(status.node_name.as_deref(), Some(SECOND));
    assert_eq!(ns.get::<Pod>(name).await.uid(), pod.uid());
    beats::wait_for_beat(ns, name).await;
    beats::assert_files(ns, name);
}

/// The volume is not one of a single node: the processes go on elsewhere.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn processes_go_on_elsewhere_when_the_node_of_the_pause_is_lost() {
    let ns = TestNamespace::new("lost-paused").await;
    let name = "paused";
    let incarnation = counts_on_the_first(&ns, name).await;
    let persisted = beats::pause(&ns, name).await.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    let kubelet = StoppedKubelet::new();
    wait_until_lost();
    ns.patch(name, json!({"state": "Running"})).await;
    beats::assert_goes_on(&ns, name, incarnation).await;
    assert_stays(&ns, name, kubelet).await;
}

/// The node is lost with the containers on it, after a resume. What was saved before has run, and does
/// not run again; files are those of the pause.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn processes_of_a_lost_node_are_not_run_twice_on_the_other() {
    let ns = TestNamespace::new("lost-running").await;
    let name = "running";
    let incarnation = resumed_on_the_first(&ns, name).await;
    let pod = ns.get::<Pod>(name).await;
    let kubelet = StoppedKubelet::new();
    kill_container(&pod);
    ns.gone(&pod).await;
    let status = ns.ready_again(name, 1).await;
    assert_begins_anew(&ns, name, status, incarnation).await;
    assert_stays(&ns, name, kubelet).await;
}

/// The node is lost with the containers on it while CRIU writes.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn half_a_save_of_a_lost_node_is_not_used_on_the_other() {
    let ns = TestNamespace::new("lost-saving").await;
    let name = "saving";
    let incarnation = resumed_on_the_first(&ns, name).await;
    ns.exec(name, "echo newer >/workspace/newer");
    let pod = ns.get::<Pod>(name).await;
    let supervisor = supervisor(&pod).expect("the Pod has a supervisor");
    let saved = volume(&ns, name).await.join("state/root/memory");
    ns.patch(name, json!({"state": "Paused"})).await;
    let criu = HeldCriu::in_a_save(&supervisor, &saved);
    let kubelet = StoppedKubelet::new();
    kill_container(&pod);
    let persisted = ns.paused(name).await.persisted.unwrap();
    drop(criu);
    assert!(saved.join("archive.partial").exists() && !saved.join("meta.json").exists());
    // Of the files outside of the workspace, those of the pause before are there.
    let level = PersistenceLevel::Workspace;
    assert_eq!(persisted.level, level, "{persisted:?}");
    let reason = "the Pod ended before it reported a save";
    assert_eq!(persisted.reason.as_deref(), Some(reason));
    ns.patch(name, json!({"state": "Running"})).await;
    let status = ns.ready(name).await;
    assert_begins_anew(&ns, name, status, incarnation).await;
    assert_eq!(ns.exec(name, "cat /workspace/newer"), "newer");
    assert_stays(&ns, name, kubelet).await;
}

/// The containers run on, and the sandbox responds: the supervisor saves in place of the kubelet,
/// and no two copies run.
#[tokio::test]
#[ignore = "needs a cluster with two nodes: make test-cluster"]
async fn processes_go_on_elsewhere_when_only_the_kubelet_is_lost() {
    let ns = TestNamespace::new("lost-kubelet").await;
    let name = "alive";
    let incarnation = counts_on_the_first(&ns, name).await;
    let pod = ns.get::<Pod>(name).await;
    let kubelet = StoppedKubelet::new();
    let is_replaced = |s: &SandboxStatus| s.reason == Some(Reason::PodReplaced);
    let replaced = ns.until(name, "replaced", is_replaced).await;
    let message = replaced.message.unwrap();
    assert!(
        message.ends_with("; node node is not reporting"),
        "{message}"
    );
    ns.gone(&pod).await;
    let persisted = ns.get::<crds::Sandbox>(name).await.status.unwrap();
    let persisted = persisted.persisted.unwrap();
    assert_eq!(persisted.level, PersistenceLevel::Memory, "{persisted:?}");
    beats::assert_goes_on(&ns, name, incarnation).await;
    assert_stays(&ns, name, kubelet).await;
}
