//! A sandbox that is in use through a gateway is not paused, even if its own server reports idle.

use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use crds::sandbox::{PauseReason, Phase};
use serde_json::json;
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

/// Port of a sandbox that names none.
const PORT: u16 = 60_000;

#[tokio::test(start_paused = true)]
async fn open_request_prevents_idle_pause_until_it_ends() {
    let mut cluster = TestCluster::new();
    cluster.serve().await;
    let gateway = cluster.gateway().await;
    let spec = json!({"lifecycle": {"idleTimeout": "10m"}});
    let entry = cluster.running_with("a", &spec).await;
    let idle = Some(Duration::from_hours(9));
    cluster.supervisors.all_idle_for(idle);
    let ip: IpAddr = entry.status.pod_ip.as_deref().unwrap().parse().unwrap();
    // The kernel accepts connections; there is never a response.
    let _server = TcpListener::bind((ip, PORT)).unwrap();
    let path = format!("/{}/runtime/stream", entry.runtime_id);
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
