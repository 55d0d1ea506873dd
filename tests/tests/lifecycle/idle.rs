//! Idle sandboxes are paused and resumed by the first request.

use std::time::Duration;

use crds::Sandbox;
use crds::sandbox::{DesiredState, PauseReason, Phase};
use serde_json::json;
use tests::test_cluster::TestCluster;

/// A running sandbox with an idle timeout of ten minutes, whose server says that it has been idle
/// for ever.
async fn lazy(cluster: &TestCluster) -> (String, String) {
    let spec = json!({"lifecycle": {"idleTimeout": "10m"}});
    let entry = cluster.running_with("a", &spec).await;
    let ip = entry.status.pod_ip.clone().unwrap();
    cluster.supervisors.idle_for(&ip, Duration::from_hours(9));
    (entry.runtime_id.clone(), ip)
}

async fn sandbox(cluster: &TestCluster) -> Sandbox {
    cluster.sandboxes().get("a").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn idle_sandbox_is_paused_at_its_deadline() {
    let cluster = TestCluster::new();
    lazy(&cluster).await;
    let before = sandbox(&cluster).await;
    tokio::time::sleep(Duration::from_secs(595)).await;
    assert_eq!(cluster.status("a").await.phase, Phase::Running);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let paused = cluster.wait_for_phase("a", Phase::Paused).await;
    assert_eq!(paused.status.pause_reason, Some(PauseReason::Idle));
    let after = sandbox(&cluster).await;
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!(after.spec.state, DesiredState::Running);
}

#[tokio::test(start_paused = true)]
async fn thousand_requests_wake_a_sandbox_with_one_write() {
    let cluster = TestCluster::new();
    let (id, _) = lazy(&cluster).await;
    let gateway = cluster.gateway().await;
    cluster.wait_for_phase("a", Phase::Paused).await;
    let before = wishes(&cluster);
    let requests = (0..1000).map(|_| {
        let (gateway, id) = (gateway.clone(), id.clone());
        let path = format!("/{id}/runtime/execute_action");
        tokio::spawn(async move { gateway.get(&path).await.status })
    });
    for request in requests.collect::<Vec<_>>() {
        // No server has the scripted address, so a forwarded request cannot be answered.
        assert_eq!(request.await.unwrap(), 502);
    }
    assert_eq!(cluster.status("a").await.phase, Phase::Running);
    assert_eq!(wishes(&cluster) - before, 1);
}

/// Writes of gateways so far.
fn wishes(cluster: &TestCluster) -> usize {
    let writes = cluster.faults().writes().into_iter();
    writes
        .filter(|w| w.request.manager == "sandbox-gateway")
        .count()
}
