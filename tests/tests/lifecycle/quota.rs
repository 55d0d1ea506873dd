//! Quota of an API key with several gateways and crashing controllers: never more Pods than the key
//! allows, and every queued sandbox is admitted in the end.

use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::Phase;
use k8s_openapi::api::core::v1::Pod;
use operator::gateway::Tenants;
use serde_json::{Value, json};
use tests::clients::text;
use tests::test_cluster::{API_KEY, OTHER_KEY, TestCluster, TestGateway, start_body};
use tokio::time::sleep;

/// An installation in which the tenant `default` has these limits.
fn limited(limits: &Value) -> TestCluster {
    let tenants = Tenants::fixed([("default", API_KEY), ("other", OTHER_KEY)]);
    limit(&tenants, limits);
    let mut cluster = TestCluster::without_controller();
    cluster.config.tenants = tenants;
    cluster.start_controller();
    cluster
}

fn limit(tenants: &Tenants, limits: &Value) {
    let mut record = limits.clone();
    record["name"] = "default".into();
    record["sha256"] = "0".repeat(64).into();
    let json = json!([record]).to_string();
    tenants.replace(json.as_bytes()).unwrap();
}

async fn start(gateway: &TestGateway, session: &str, factor: f64) -> String {
    let mut body = start_body(session);
    body["resource_factor"] = json!(factor);
    text(&gateway.start(&body).await, "runtime_id")
}

async fn pods(cluster: &TestCluster) -> usize {
    cluster.names::<Pod>().await.len()
}

#[tokio::test(start_paused = true)]
async fn quota_limits_pods_and_admits_every_queued_sandbox() {
    const MAX_PODS: usize = 3;
    let mut cluster = limited(&json!({"maxSandboxes": MAX_PODS}));
    let gateways = [cluster.gateway().await, cluster.gateway().await];
    let mut open = Vec::new();
    for n in 0..12 {
        let gateway = &gateways[n % 2];
        open.push(start(gateway, &n.to_string(), 1.0).await);
        assert!(pods(&cluster).await <= MAX_PODS);
    }
    let (mut rounds, mut turns) = (0, 0);
    while !open.is_empty() {
        sleep(Duration::from_secs(1)).await;
        rounds += 1;
        assert!(rounds < 1000, "{} wait for ever", open.len());
        assert!(pods(&cluster).await <= MAX_PODS, "round {rounds}");
        if rounds % 7 == 0 {
            cluster.start_controller();
        }
        let running = cluster.index.list(|e| e.status.phase == Phase::Running);
        for entry in running.iter().filter(|_| rounds % 3 == 0).take(2) {
            let body = json!({"runtime_id": entry.runtime_id});
            assert_eq!(gateways[rounds % 2].post("/stop", &body).await.status, 200);
            open.retain(|id| *id != entry.runtime_id);
            turns += 1;
        }
    }
    assert_eq!(turns, 12);
}

#[tokio::test(start_paused = true)]
async fn queued_sandbox_reports_quota_and_other_tenants_start() {
    let cluster = limited(&json!({"maxSandboxes": 1}));
    let gateway = cluster.gateway().await;
    let first = start(&gateway, "first", 1.0).await;
    cluster.wait_for_phase(&first, Phase::Running).await;
    let second = start(&gateway, "second", 1.0).await;
    cluster
        .wait_for_reason(&second, Reason::QuotaExceeded)
        .await;
    let told = gateway.get("/sessions/second").await.body;
    assert_eq!(told["status"], "starting");
    assert_eq!(told["pod_status"], "Pending");
    let reason = "the API key allows";
    assert!(text(&told, "status_detail").contains(reason), "{told}");
    let (post, body) = (http::Method::POST, start_body("s").to_string());
    let other = gateway.send(OTHER_KEY, post, "/start", body).await.body;
    let other = text(&other, "runtime_id");
    cluster.wait_for_phase(&other, Phase::Running).await;

    gateway.post("/pause", &json!({"runtime_id": first})).await;
    cluster.wait_for_phase(&second, Phase::Running).await;
    // Now the first one has to wait.
    gateway.post("/resume", &json!({"runtime_id": first})).await;
    cluster.wait_for_reason(&first, Reason::QuotaExceeded).await;
    limit(&cluster.config.tenants, &json!({"maxSandboxes": 2}));
    cluster.wait_for_phase(&first, Phase::Running).await;
}

#[tokio::test(start_paused = true)]
async fn compute_quota_queues_or_fails_sandboxes() {
    // By default a sandbox may use 2 CPU.
    let cluster = limited(&json!({"maxCpu": "5"}));
    let gateway = cluster.gateway().await;
    let small = start(&gateway, "small", 1.0).await;
    cluster.wait_for_phase(&small, Phase::Running).await;
    let large = start(&gateway, "large", 2.0).await;
    let huge = start(&gateway, "huge", 3.0).await;
    let failed = cluster.wait_for_phase(&huge, Phase::Failed).await;
    assert_eq!(failed.status.reason, Some(Reason::QuotaExceeded));
    cluster.wait_for_reason(&large, Reason::QuotaExceeded).await;
    // No quota becomes available: the wait ends like any other start.
    let failed = cluster.wait_for_phase(&large, Phase::Failed).await;
    assert_eq!(failed.status.reason, Some(Reason::StartTimeout));
}
