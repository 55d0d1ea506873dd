//! Idle sandboxes are paused at their deadline and resumed by the first request; one that is in use
//! through a gateway is not paused, even if its own server reports idle.

use std::time::Duration;

use crds::sandbox::{PauseReason, Phase};
use serde_json::json;
use tests::test_cluster::{SandboxServers, TestCluster};
use tokio::time::sleep;

/// A running sandbox with an idle timeout of ten minutes, whose server says that it has been idle
/// for ever: its id.
async fn lazy(cluster: &TestCluster) -> String {
    let spec = json!({"lifecycle": {"idleTimeout": "10m"}});
    let entry = cluster.running_with("a", &spec).await;
    cluster
        .supervisors
        .all_idle_for(Some(Duration::from_hours(9)));
    entry.runtime_id.clone()
}

#[tokio::test(start_paused = true)]
async fn thousand_requests_wake_a_sandbox_with_one_write() {
    let cluster = TestCluster::new();
    let id = lazy(&cluster).await;
    let gateway = cluster.gateway().await;
    cluster.wait_for_phase("a", Phase::Paused).await;
    let before = wishes(&cluster);
    let requests = (0..1000).map(|_| {
        let (gateway, id) = (gateway.clone(), id.clone());
        let path = format!("/{id}/runtime/execute_action");
        tokio::spawn(async move { gateway.get(&path).await.status })
    });
    for request in requests.collect::<Vec<_>>() {
        // Nothing listens at the scripted address, so a forwarded request cannot be answered.
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

#[tokio::test(start_paused = true)]
async fn open_request_prevents_idle_pause_until_it_ends() {
    let mut cluster = TestCluster::new();
    cluster.servers = SandboxServers::Silent;
    let gateway = cluster.gateway().await;
    let id = lazy(&cluster).await;
    let path = format!("/{id}/runtime/stream");
    let request = tokio::spawn(async move { gateway.get(&path).await });

    sleep(Duration::from_hours(12)).await;
    assert!(!request.is_finished(), "{:?}", request.await);
    assert_eq!(cluster.status("a").await.phase, Phase::Running);
    request.abort();
    sleep(Duration::from_secs(595)).await;
    assert_eq!(cluster.status("a").await.phase, Phase::Running);
    sleep(Duration::from_secs(10)).await;
    let status = cluster.status("a").await;
    assert_eq!(status.phase, Phase::Paused);
    assert_eq!(status.pause_reason, Some(PauseReason::Idle));
}
