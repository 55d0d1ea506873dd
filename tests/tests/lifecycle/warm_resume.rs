//! A Pod waits for the resume of a paused sandbox (`docs/lifecycle.md`, "A warm Pod for the resume").

use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, PodStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use operator::gateway::Tenants;
use serde_json::json;
use tests::clients::text;
use tests::fault_injection::{Failure, Verb};
use tests::test_cluster::{API_KEY, PodScript, TestCluster, start_body};
use tokio::time::sleep;

const HOUR: Duration = Duration::from_hours(1);

/// A paused sandbox `a` with a Pod that waits for an hour, and the uid of that Pod.
async fn waiting(cluster: &TestCluster) -> String {
    let spec = json!({"lifecycle": {"warmResumeFor": "1h"}});
    cluster.running_with("a", &spec).await;
    cluster.bring("a", DesiredState::Paused).await;
    waiting_pod(cluster, "a").await
}

/// Uid of the Pod of a paused sandbox, which is dormant.
async fn waiting_pod(cluster: &TestCluster, name: &str) -> String {
    cluster.wait_until_quiet().await;
    let pod = cluster.api_of::<Pod>().get(name).await.unwrap();
    let pod = pod.uid().unwrap();
    assert!(!is_initialized(cluster, &pod));
    pod
}

fn is_initialized(cluster: &TestCluster, pod: &str) -> bool {
    cluster.supervisors.inits().iter().any(|init| init.0 == pod)
}

#[tokio::test(start_paused = true)]
async fn resume_takes_the_pod_that_waits() {
    let cluster = TestCluster::new();
    let pod = waiting(&cluster).await;
    let status = cluster.status("a").await;
    assert_eq!(
        (status.phase, status.pod_name, status.pod_ip),
        (Phase::Paused, None, None)
    );
    assert_eq!(status.pod_status, Some(PodStatus::NotFound));
    cluster.assert_unchanged_for(HOUR / 2).await;
    let resumed = cluster.bring("a", DesiredState::Running).await;
    assert_eq!(resumed.status.pod_uid.as_ref(), Some(&pod));
    let started = &resumed.status.container_started_at;
    assert_eq!(started, &None, "it is older than the resume");
    assert_eq!(cluster.node.created().len(), 2);
    // It is not dormant any more, so that the next pause deletes it.
    cluster.bring("a", DesiredState::Paused).await;
    assert_ne!(waiting_pod(&cluster, "a").await, pod);
    cluster.node.assert_single_pod();
}

#[tokio::test(start_paused = true)]
async fn waiting_pod_is_deleted_when_its_time_is_over() {
    let cluster = TestCluster::new();
    waiting(&cluster).await;
    sleep(HOUR).await;
    assert_eq!(cluster.names::<Pod>().await, [""; 0]);
    cluster.assert_unchanged_for(HOUR).await;
    cluster.bring("a", DesiredState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn another_controller_keeps_the_pod_dormant() {
    let mut cluster = TestCluster::new();
    let pod = waiting(&cluster).await;
    for lag in [Duration::ZERO, Duration::from_secs(2)] {
        cluster.faults().set_watch_lag(lag);
        cluster.start_controller();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(waiting_pod(&cluster, "a").await, pod);
    }
    let resumed = cluster.bring("a", DesiredState::Running).await;
    assert_eq!(resumed.status.pod_uid, Some(pod));
}

#[tokio::test(start_paused = true)]
async fn lost_waiting_pods_are_replaced_a_few_times() {
    let cluster = TestCluster::new();
    let first = waiting(&cluster).await;
    cluster.node.evict("a").await;
    assert_ne!(waiting_pod(&cluster, "a").await, first);
    cluster.node.script_next_pod("a", PodScript::Fails);
    cluster.node.evict("a").await;
    cluster.wait_until_quiet().await;
    assert_eq!(cluster.names::<Pod>().await, [""; 0]);
    let created = cluster.node.created().len();
    assert_eq!(created, 4, "one ran, and three were to wait");
    cluster.node.script_next_pod("a", PodScript::Runs);
    let resumed = cluster.bring("a", DesiredState::Running).await;
    assert_eq!(resumed.status.restarts.count, 0);
}

#[tokio::test(start_paused = true)]
async fn changed_spec_replaces_the_waiting_pod() {
    let cluster = TestCluster::new();
    let first = waiting(&cluster).await;
    let image = |state: &str| json!({"spec": {"image": format!("i-{state}"), "state": state}});
    cluster.patch("a", image("Paused")).await;
    let second = waiting_pod(&cluster, "a").await;
    assert_ne!(first, second);
    cluster.patch("a", image("Running")).await;
    let resumed = cluster.wait_for_phase("a", Phase::Running).await;
    assert_ne!(resumed.status.pod_uid, Some(second.clone()));
    assert!(!is_initialized(&cluster, &second));
    cluster.node.assert_single_pod();
}

#[tokio::test(start_paused = true)]
async fn rejected_pod_is_no_state_of_the_paused_sandbox() {
    let cluster = TestCluster::new();
    let spec = json!({"lifecycle": {"warmResumeFor": "1h"}});
    cluster.running_with("a", &spec).await;
    let refusal = Failure::Forbidden("exceeded quota: {} of 1 pods");
    cluster.faults().fail_next(usize::MAX, refusal, |request| {
        request.verb == Verb::Create && request.resource == "pods"
    });
    cluster.bring("a", DesiredState::Paused).await;
    cluster.wait_until_quiet().await;
    cluster.assert_unchanged_for(HOUR / 2).await;
    let status = cluster.status("a").await;
    assert_eq!(
        (status.phase, status.reason),
        (Phase::Paused, Some(Reason::Requested))
    );
    cluster.faults().clear_failures();
    cluster.bring("a", DesiredState::Running).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_pod_costs_no_quota_of_the_api_key() {
    let tenants = Tenants::fixed([("default", API_KEY)]);
    let limit = json!([{"name": "default", "sha256": "0".repeat(64), "maxSandboxes": 1}]);
    tenants.replace(limit.to_string().as_bytes()).unwrap();
    let mut cluster = TestCluster::without_controller();
    cluster.config.tenants = tenants;
    cluster.config.defaults.lifecycle.warm_resume_for = Some(HOUR);
    cluster.start_controller();
    let gateway = cluster.gateway().await;
    let first = text(&gateway.start(&start_body("first")).await, "runtime_id");
    cluster.wait_for_phase(&first, Phase::Running).await;
    gateway.post("/pause", &json!({"runtime_id": first})).await;
    cluster.wait_for_phase(&first, Phase::Paused).await;
    waiting_pod(&cluster, &first).await;

    let second = text(&gateway.start(&start_body("second")).await, "runtime_id");
    cluster.wait_for_phase(&second, Phase::Running).await;
    cluster.start_controller();
    gateway.post("/resume", &json!({"runtime_id": first})).await;
    cluster.wait_for_reason(&first, Reason::QuotaExceeded).await;
    cluster.wait_until_quiet().await;
    assert_eq!(cluster.names::<Pod>().await, [second.as_str()]);
    gateway.post("/stop", &json!({"runtime_id": second})).await;
    cluster.wait_for_phase(&first, Phase::Running).await;
}
