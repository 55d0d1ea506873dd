//! User namespaces of Pods: the probe of the leader, and its record.

use std::time::Duration;

use crds::sandbox::Phase;
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use operator::controller::UserNamespaces;
use serde_json::{Value, json};
use tests::fault_injection::{Failure, Verb};
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::sleep;

const PROBE: &str = "sandbox-user-namespace-probe";
const RECORDS: &str = "sandbox-operator-cluster-probes";
/// More than the time limit of a probe.
const PROBE_TIME: Duration = Duration::from_mins(6);

/// A cluster in which the Pod of the probe has this script.
fn cluster(probe: PodScript) -> TestCluster {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.user_namespaces = UserNamespaces::Auto;
    cluster.node.script_next_pod(PROBE, probe);
    cluster.start_controller();
    cluster
}

async fn host_users(cluster: &TestCluster, pod: &str) -> Option<bool> {
    let pod = cluster.api_of::<Pod>().get(pod).await.unwrap();
    pod.spec.unwrap().host_users
}

async fn record(cluster: &TestCluster) -> Value {
    record_of(cluster, "user_namespaces").await
}

async fn record_of(cluster: &TestCluster, key: &str) -> Value {
    let api: Api<ConfigMap> = cluster.api_of();
    let data = api.get(RECORDS).await.unwrap().data.unwrap();
    serde_json::from_str(&data[key]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn new_pods_have_user_namespaces_when_the_probe_succeeds() {
    let cluster = cluster(PodScript::Unschedulable);
    cluster
        .put_pool(&json!({"replicas": 1, "template": {"image": "debian:12"}}))
        .await;
    cluster.running("a").await;
    sleep(Duration::from_secs(10)).await;
    let before = cluster.names::<Pod>().await;
    assert_eq!(host_users(&cluster, "a").await, None);
    cluster.node.script_next_pod(PROBE, PodScript::Succeeds);
    // The first run has no verdict, and is repeated after an hour.
    sleep(PROBE_TIME + Duration::from_hours(1)).await;
    assert_eq!(record(&cluster).await["works"], true);
    cluster.running("b").await;
    assert_eq!(host_users(&cluster, "b").await, Some(false));
    // Neither the running sandbox nor the warm Pod is replaced.
    let after = cluster.names::<Pod>().await;
    let is_kept = |name: &&String| after.contains(name);
    let kept = before.iter().filter(is_kept).count();
    assert_eq!(kept, before.iter().filter(|name| **name != PROBE).count());
}

#[tokio::test(start_paused = true)]
async fn pods_have_none_when_the_probe_fails_or_gets_no_answer() {
    for probe in [
        PodScript::Fails,
        PodScript::Unschedulable,
        PodScript::Vanishes,
    ] {
        let cluster = cluster(probe);
        sleep(PROBE_TIME).await;
        let record = record(&cluster).await;
        assert_eq!(record["works"], false, "{probe:?}");
        assert!(record["reason"].is_string(), "{record}");
        cluster.running("a").await;
        assert_eq!(host_users(&cluster, "a").await, None, "{probe:?}");
        assert_eq!(cluster.names::<Pod>().await, ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn next_leader_trusts_the_record() {
    let mut cluster = cluster(PodScript::Succeeds);
    sleep(PROBE_TIME).await;
    let before = record(&cluster).await;
    cluster.node.script_next_pod(PROBE, PodScript::Fails);
    cluster.stop_controller();
    // Its Pod is the first act of the next leader, which waits for the record.
    cluster.create("a").await;
    fail_reads_of_records(&cluster, 3, StatusCode::SERVICE_UNAVAILABLE);
    cluster.start_controller();
    cluster.wait_for_phase("a", Phase::Running).await;
    assert_eq!(host_users(&cluster, "a").await, Some(false));
    assert_eq!(record(&cluster).await, before);
    // After a day it is checked, and then it fails.
    sleep(Duration::from_hours(25)).await;
    assert_eq!(record(&cluster).await["works"], false);
    cluster.running("b").await;
    assert_eq!(host_users(&cluster, "b").await, None);
}

#[tokio::test(start_paused = true)]
async fn leader_that_may_not_read_records_probes_again() {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.user_namespaces = UserNamespaces::Auto;
    fail_reads_of_records(&cluster, usize::MAX, StatusCode::FORBIDDEN);
    cluster.node.script_next_pod(PROBE, PodScript::Succeeds);
    cluster.start_controller();
    sleep(PROBE_TIME).await;
    cluster.running("a").await;
    assert_eq!(host_users(&cluster, "a").await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn runtime_class_that_is_missing_has_no_verdict_and_its_pods_are_of_the_default_one() {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.user_namespaces = UserNamespaces::Auto;
    cluster.config.classes.gvisor = Some("runsc".into());
    cluster.config.classes.installed = vec!["gvisor".into()];
    cluster.node.script_next_pod(PROBE, PodScript::Succeeds);
    cluster.start_controller();
    sleep(PROBE_TIME).await;
    let missing = record_of(&cluster, "user_namespaces.runsc").await;
    let expected = format!(
        "pods \"{PROBE}-runsc\" is forbidden: pod rejected: RuntimeClass \"runsc\" not found"
    );
    assert_eq!(missing["reason"], expected);
    assert_eq!(
        (&missing["works"], &missing["unanswered"]),
        (&json!(false), &json!(true))
    );
    let metrics = cluster.config.vitals.metrics.encode().unwrap();
    for (class, works) in [("", 1), ("runsc", 0)] {
        let labels = format!("probe=\"user_namespaces\",runtime_class=\"{class}\"");
        let line = format!("sandbox_operator_cluster_probe_works{{{labels}}} {works}");
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    cluster
        .running_with("a", &json!({"runtimeClassName": "gvisor"}))
        .await;
    assert_eq!(host_users(&cluster, "a").await, Some(false));
}

#[tokio::test(start_paused = true)]
async fn probe_that_a_quota_rejects_leaves_the_answer() {
    let cluster = cluster(PodScript::Succeeds);
    sleep(PROBE_TIME).await;
    let quota = "pods \"a\" is forbidden: exceeded quota: compute";
    let failure = Failure::Forbidden(quota);
    cluster.faults().fail_next(usize::MAX, failure, |request| {
        request.verb == Verb::Create && request.name.as_deref() == Some(PROBE)
    });
    sleep(Duration::from_hours(25)).await;
    let record = record(&cluster).await;
    assert_eq!(
        (&record["works"], &record["reason"]),
        (&json!(true), &json!(quota))
    );
    cluster.running("a").await;
    assert_eq!(host_users(&cluster, "a").await, Some(false));
}

fn fail_reads_of_records(cluster: &TestCluster, count: usize, code: StatusCode) {
    let failure = Failure::Code(code);
    cluster.faults().fail_next(count, failure, |request| {
        request.verb == Verb::Get && request.name.as_deref() == Some(RECORDS)
    });
}
