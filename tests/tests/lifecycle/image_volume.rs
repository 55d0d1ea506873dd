//! Injection of the executor by image volume: the probe of the leader, and nodes that differ.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use operator::controller::Injection;
use serde_json::json;
use tests::test_cluster::{PodScript, TestCluster};
use tokio::time::{Instant, sleep};

const PROBE: &str = "sandbox-executor-probe";
/// More than the time limit of a probe.
const PROBE_TIME: Duration = Duration::from_mins(6);

/// A cluster in which the Pod of the probe has this script.
fn cluster(probe: PodScript) -> TestCluster {
    let mut cluster = TestCluster::without_controller();
    cluster.config.pods.injection = Injection::Auto;
    cluster.node.script_next_pod(PROBE, probe);
    cluster.start_controller();
    cluster
}

/// Returns whether the Pod of a sandbox mounts the executor image, and does not copy it.
async fn mounts_image(cluster: &TestCluster, name: &str) -> bool {
    let pod = cluster.api_of::<Pod>().get(name).await.unwrap();
    let spec = pod.spec.unwrap();
    let mounts = spec.volumes.iter().flatten().any(|v| v.image.is_some());
    assert_ne!(mounts, spec.init_containers.is_some());
    mounts
}

async fn has_probe(cluster: &TestCluster) -> bool {
    cluster.names::<Pod>().await.contains(&PROBE.to_owned())
}

#[tokio::test(start_paused = true)]
async fn successful_probe_lets_pods_mount_the_image() {
    let cluster = cluster(PodScript::Succeeds);
    sleep(PROBE_TIME).await;
    cluster.running("a").await;
    assert!(mounts_image(&cluster, "a").await);
    assert!(!has_probe(&cluster).await);
}

#[tokio::test(start_paused = true)]
async fn pods_copy_the_executor_when_the_probe_fails_or_gets_no_answer() {
    for probe in [
        PodScript::Fails,
        PodScript::Unschedulable,
        PodScript::Vanishes,
    ] {
        let cluster = cluster(probe);
        // A start does not wait for the probe.
        let begin = Instant::now();
        cluster.running("a").await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{probe:?}");
        assert!(!mounts_image(&cluster, "a").await, "{probe:?}");
        sleep(PROBE_TIME).await;
        cluster.running("b").await;
        assert!(!mounts_image(&cluster, "b").await, "{probe:?}");
        assert!(!has_probe(&cluster).await, "{probe:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn next_leader_replaces_the_probe_of_a_crashed_one() {
    let mut cluster = cluster(PodScript::Unschedulable);
    sleep(Duration::from_secs(10)).await;
    assert!(has_probe(&cluster).await);
    cluster.node.script_next_pod(PROBE, PodScript::Succeeds);
    cluster.start_controller();
    sleep(PROBE_TIME).await;
    assert!(!has_probe(&cluster).await);
    cluster.running("a").await;
    assert!(mounts_image(&cluster, "a").await);
}

#[tokio::test(start_paused = true)]
async fn pod_is_replaced_when_its_node_cannot_mount_the_image() {
    let cluster = cluster(PodScript::Succeeds);
    sleep(PROBE_TIME).await;
    cluster.node.script_next_pod("a", PodScript::CannotMount);
    cluster.running("a").await;
    // Nor do later Pods, of pools neither: any of them may get to that node.
    cluster
        .put_pool(&json!({"replicas": 1, "template": {"image": "debian:12"}}))
        .await;
    sleep(Duration::from_mins(1)).await;
    let pods = cluster.names::<Pod>().await;
    assert_eq!(pods.len(), 2);
    for name in pods {
        assert!(!mounts_image(&cluster, &name).await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn warm_pods_are_kept_by_a_leader_that_has_not_probed() {
    let mut cluster = cluster(PodScript::Succeeds);
    sleep(PROBE_TIME).await;
    cluster
        .put_pool(&json!({"replicas": 1, "template": {"image": "debian:12"}}))
        .await;
    sleep(Duration::from_mins(1)).await;
    let before = cluster.names::<Pod>().await;
    assert!(mounts_image(&cluster, &before[0]).await);
    cluster.node.script_next_pod(PROBE, PodScript::Fails);
    cluster.start_controller();
    sleep(PROBE_TIME).await;
    assert_eq!(cluster.names::<Pod>().await, before);
}
