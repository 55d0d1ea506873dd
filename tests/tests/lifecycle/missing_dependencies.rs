//! Sandboxes that lack something: they say what, and come back by themselves once it is there.

use std::sync::Arc;
use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use operator::index::Entry;
use serde_json::{Value, json};
use tests::fault_injection::{Failure, RequestInfo, Verb};
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::{Instant, sleep};

/// The longest a sandbox may wait for what it has been given.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until a sandbox says this; fails unless its message has these words, its condition the
/// same, and there is a warning that says so.
async fn says(cluster: &TestCluster, name: &str, reason: Reason, words: &str) -> Arc<Entry> {
    let entry = cluster.wait_for_reason(name, reason).await;
    let told = entry.status.message.clone().unwrap_or_default();
    assert!(told.contains(words), "{told}");
    let ready = entry.status.conditions.iter().find(|c| c.type_ == "Ready");
    let ready = ready.map(|c| (c.status.as_str(), c.reason.as_str(), c.message.clone()));
    assert_eq!(ready, Some(("False", &*reason.to_string(), told)));
    // Events come a moment later.
    sleep(Duration::from_secs(5)).await;
    let events: Api<Event> = cluster.api_of();
    let events = events.list(&ListParams::default()).await.unwrap();
    let said = events.items.iter().any(|event| {
        let note = event.note.as_deref().unwrap_or_default();
        event.type_.as_deref() == Some("Warning") && note.contains(words)
    });
    assert!(said, "no event says {words:?}: {:#?}", events.items);
    entry
}

/// Number of the controller's writes to objects of a kind, refused ones included.
fn writes_of(cluster: &TestCluster, resource: &str) -> usize {
    let writes = cluster.controller_writes();
    let of = writes.iter().filter(|w| w.request.resource == resource);
    of.count()
}

fn message(entry: &Entry) -> &str {
    entry.status.message.as_deref().unwrap_or_default()
}

async fn runs_soon(cluster: &TestCluster, name: &str) {
    let given = Instant::now();
    cluster.wait_for_phase(name, Phase::Running).await;
    assert!(given.elapsed() <= RECOVERY_TIMEOUT, "{:?}", given.elapsed());
}

async fn put_pool(cluster: &TestCluster, template: &Value) {
    cluster.put_pool(&json!({"template": template})).await;
}

#[tokio::test(start_paused = true)]
async fn missing_pool_is_reported_until_it_exists() {
    let cluster = TestCluster::new();
    cluster.create_with("a", &json!({"pool": "p"})).await;
    let entry = says(&cluster, "a", Reason::PoolNotFound, "SandboxPool p").await;
    assert_eq!(entry.status.phase, Phase::Pending);
    // The wait never ends in a failure.
    sleep(Duration::from_hours(5)).await;
    let ports = json!([{"name": "runtime", "port": 8000}]);
    let template = json!({"image": "debian:12", "ports": ports});
    put_pool(&cluster, &template).await;
    runs_soon(&cluster, "a").await;
    // The gateway does not watch pools.
    let entry = cluster.wait("a", |_| true).await.unwrap();
    assert!(entry.spec.ports.is_empty());
    assert_eq!(entry.port("runtime"), Some(8000));
}

#[tokio::test(start_paused = true)]
async fn failed_sandbox_restarts_when_pool_is_fixed() {
    let mut cluster = TestCluster::new();
    let broken = json!({"image": "debian:12", "podTemplate": {"spec": {"hostPID": true}}});
    put_pool(&cluster, &broken).await;
    cluster.create_with("a", &json!({"pool": "p"})).await;
    let entry = says(&cluster, "a", Reason::InvalidSpec, "hostPID").await;
    assert_eq!(entry.status.phase, Phase::Failed);

    // Neither time nor another controller nor the same template brings it back.
    cluster.start_controller();
    put_pool(&cluster, &broken).await;
    cluster.wait_until_quiet().await;
    let before = cluster.faults().total_writes();
    sleep(Duration::from_hours(5)).await;
    assert_eq!(cluster.faults().total_writes(), before);

    // A mend that mends nothing is told.
    let worse = json!({"image": "debian:12", "podTemplate": {"spec": {"hostIPC": true}}});
    put_pool(&cluster, &worse).await;
    let entry = cluster.wait("a", |e| message(e).contains("hostIPC")).await;
    assert_eq!(entry.unwrap().status.phase, Phase::Failed);

    // Nor need the controller be there when the pool is mended.
    cluster.stop_controller();
    put_pool(&cluster, &json!({"image": "debian:12"})).await;
    cluster.start_controller();
    runs_soon(&cluster, "a").await;
}

/// Checks that a sandbox which lacks an object says so, and runs once its node can start it.
async fn reports_until_healed(script: PodScript, spec: &Value, reason: Reason, words: &str) {
    let cluster = TestCluster::new();
    cluster.node.script_next_pod("a", script);
    cluster.create_with("a", spec).await;
    let entry = says(&cluster, "a", reason, words).await;
    assert_eq!(entry.status.phase, Phase::Starting);
    sleep(Duration::from_mins(12)).await;
    cluster.node.heal("a").await;
    runs_soon(&cluster, "a").await;
    assert_eq!(cluster.node.created().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_secret_or_storage_class_is_reported_until_it_exists() {
    let from = json!({"secretKeyRef": {"name": "keys", "key": "k"}});
    let spec = json!({"env": [{"name": "K", "valueFrom": from}]});
    let (script, reason) = (PodScript::LacksSecret, Reason::CreateContainerConfigError);
    reports_until_healed(script, &spec, reason, "secret \"keys\" not found").await;
    let spec = json!({"workspace": {"size": "1Gi", "storageClassName": "fast"}});
    let (script, reason) = (PodScript::LacksVolume, Reason::Unschedulable);
    reports_until_healed(script, &spec, reason, "storage class fast").await;
}

/// An exhausted quota is reported once; a policy that says something else each time does not requeue itself.
#[tokio::test(start_paused = true)]
async fn rejected_pod_is_retried_with_backoff() {
    let quota = "pods \"a\" is forbidden: exceeded quota: team, requested: limits.cpu=2, used: limits.cpu={}, \
        limited: limits.cpu=100";
    let policy = "admission webhook \"policy\" denied the request: audit id {}";
    for (message, words) in [
        (quota, "exceeded quota: team"),
        (policy, "the request: audit id"),
    ] {
        let mut cluster = TestCluster::without_controller();
        let is_pod = |r: &RequestInfo| r.verb == Verb::Create && r.resource == "pods";
        let refusal = Failure::Forbidden(message);
        cluster.faults().fail_next(usize::MAX, refusal, is_pod);
        cluster.faults().set_watch_lag(Duration::from_millis(50));
        cluster.start_controller();
        let patience = json!({"lifecycle": {"startTimeout": "24h"}});
        cluster.create_with("a", &patience).await;
        let entry = says(&cluster, "a", Reason::Refused, words).await;
        assert_eq!(entry.status.phase, Phase::Pending);

        let refused = || writes_of(&cluster, "pods");
        let statuses = || writes_of(&cluster, "sandboxes");
        let (before, asked) = (statuses(), refused());
        sleep(Duration::from_hours(1)).await;
        let (written, asked) = (statuses() - before, refused() - asked);
        assert_eq!(written, if message == policy { asked } else { 0 });
        assert!((10..=40).contains(&asked), "{asked} attempts in an hour");

        cluster.faults().clear_failures();
        let given = Instant::now();
        cluster.wait_for_phase("a", Phase::Running).await;
        let took = given.elapsed();
        assert!(took <= Duration::from_mins(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn terminating_claim_is_not_adopted() {
    let cluster = TestCluster::new();
    cluster.running("a").await;
    cluster.bring("a", DesiredState::Paused).await;
    let claims: Api<PersistentVolumeClaim> = cluster.api_of();
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let (name, params) = ("a-workspace", PatchParams::default());
    let held = finalizers(json!(["example.com/held"]));
    claims.patch(name, &params, &held).await.unwrap();
    claims.delete(name, &DeleteParams::default()).await.unwrap();

    cluster.set_state("a", DesiredState::Running).await;
    let named = cluster.wait("a", |e| message(e).contains(name)).await;
    let told = message(named.as_ref().unwrap());
    assert!(told.contains("is still being deleted"), "{told}");
    sleep(Duration::from_mins(10)).await;
    assert_eq!(cluster.node.created().len(), 1);
    let free = finalizers(Value::Null);
    claims.patch(name, &params, &free).await.unwrap();
    runs_soon(&cluster, "a").await;
    let claim = claims.get(name).await.unwrap();
    assert_eq!(claim.metadata.deletion_timestamp, None);
}

#[tokio::test(start_paused = true)]
async fn pods_deleted_at_creation_back_off_and_fail() {
    let cluster = TestCluster::new();
    cluster.node.script_next_pod("a", PodScript::Vanishes);
    cluster.create("a").await;
    let begun = Instant::now();
    let entry = cluster.wait_for_phase("a", Phase::Failed).await;
    assert_eq!(entry.status.reason, Some(Reason::CrashLoop));
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert_eq!(cluster.node.created().len(), 3);
}
