//! Isolation of sandboxes in every namespace that has some.

use std::time::Duration;

use crds::Sandbox;
use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tests::fault_injection::Failure;
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

const POLICY: &str = "sandbox-operator-isolation";

fn policy() -> NetworkPolicySpec {
    serde_json::from_value(json!({
        "podSelector": {"matchLabels": {"app.kubernetes.io/managed-by": "sandbox-operator"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}],
        "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}],
    }))
    .unwrap()
}

/// A cluster whose controller isolates.
fn isolating_cluster() -> TestCluster {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.network_policy = Some(policy());
    cluster.start_controller();
    cluster
}

async fn is_isolated(policies: &Api<NetworkPolicy>) -> bool {
    let found = policies.get_opt(POLICY).await.unwrap();
    found.is_some_and(|found| found.spec == Some(policy()))
}

/// Resources that the controller wrote, without claims and Events.
fn writes(cluster: &TestCluster) -> Vec<String> {
    let writes = cluster.controller_writes();
    let texts = writes.iter().map(|w| w.request.resource.clone());
    texts
        .filter(|name| name != "events" && name != "persistentvolumeclaims")
        .collect()
}

fn refuse_policies(cluster: &TestCluster) {
    let forbidden = Failure::Code(StatusCode::FORBIDDEN);
    let faults = cluster.api.faults();
    faults.fail_next(usize::MAX, forbidden, |request| {
        request.resource == "networkpolicies"
    });
}

#[tokio::test(start_paused = true)]
async fn namespace_is_isolated_before_its_first_pod() {
    let cluster = isolating_cluster();
    cluster.running("a").await;
    assert_eq!(writes(&cluster)[..2], ["networkpolicies", "pods"]);
    let policies: Api<NetworkPolicy> = cluster.api_of();
    assert!(is_isolated(&policies).await);
    let labels = policies.get(POLICY).await.unwrap().metadata.labels;
    let manager = &labels.unwrap()["app.kubernetes.io/managed-by"];
    assert_eq!(manager, "sandbox-operator");
    cluster.running("b").await;
    let checks = writes(&cluster).into_iter();
    let checks = checks.filter(|resource| resource == "networkpolicies");
    assert_eq!(checks.count(), 1, "one check serves both starts");

    let namespaces: Api<Namespace> = Api::all(cluster.observer.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    let params = PostParams::default();
    namespaces.create(&params, &other).await.unwrap();
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.observer.clone(), "other");
    assert!(!is_isolated(&policies).await, "it has no sandbox yet");
    let spec = json!({"image": "i", "command": ["sleep", "infinity"]});
    let sandbox = Sandbox::new("a", serde_json::from_value(spec).unwrap());
    let sandboxes: Api<Sandbox> = Api::namespaced(cluster.observer.clone(), "other");
    sandboxes.create(&params, &sandbox).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.observer.clone(), "other");
    while pods.get_opt("a").await.unwrap().is_none() {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(is_isolated(&policies).await);
}

#[tokio::test(start_paused = true)]
async fn policy_changed_by_hand_is_restored_by_next_start_and_by_restart_of_controller() {
    let mut cluster = isolating_cluster();
    let policies: Api<NetworkPolicy> = cluster.api_of();
    cluster.running("a").await;
    let opened = Patch::Merge(json!({"spec": {"ingress": [{}], "egress": null}}));
    let by_hand = PatchParams::default();
    policies.patch(POLICY, &by_hand, &opened).await.unwrap();
    assert!(!is_isolated(&policies).await);
    sleep(Duration::from_secs(61)).await;
    cluster.running("b").await;
    assert!(is_isolated(&policies).await);

    let params = DeleteParams::default();
    policies.delete(POLICY, &params).await.unwrap();
    cluster.start_controller();
    cluster.wait_until_quiet().await;
    assert!(is_isolated(&policies).await, "running sandboxes suffice");
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_isolation_and_running_sandbox_is_served_on_without() {
    let mut cluster = isolating_cluster();
    refuse_policies(&cluster);
    cluster.create("a").await;
    let refused = cluster
        .wait("a", |e| e.status.reason == Some(Reason::Refused))
        .await;
    assert_eq!(refused.unwrap().status.phase, Phase::Pending);
    assert!(!writes(&cluster).contains(&"pods".to_owned()));
    cluster.api.faults().clear_failures();
    cluster.wait_for_phase("a", Phase::Running).await;

    refuse_policies(&cluster);
    cluster.start_controller();
    cluster.set_state("a", DesiredState::Paused).await;
    cluster.wait_for_phase("a", Phase::Paused).await;
}
