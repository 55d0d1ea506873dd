//! Readiness checks of a controller with unmet dependencies, and recovery once they are met.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::sandbox::DesiredState;
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use standalone::api::EmbeddedApi;
use tests::fault_injection::{Failure, Verb, test_clock};
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn readiness_names_missing_crd_until_it_is_installed() {
    let mut cluster = TestCluster::without_controller();
    let bare = EmbeddedApi::in_memory(&[], test_clock());
    let installed = Arc::new(AtomicBool::new(false));
    cluster.client = either(&bare, &cluster.api, &installed);
    cluster.start_controller();
    let vitals = cluster.config.vitals.clone();
    sleep(Duration::from_mins(30)).await;
    let missing = vitals.health.readiness_failures();
    let kinds = ["sandboxes", "sandboxpools"];
    assert_eq!(
        missing,
        kinds.map(|k| format!("CRD {k}.openhands.dev is not installed"))
    );
    assert!(vitals.health.liveness_failures().is_empty());

    installed.store(true, Ordering::Relaxed);
    cluster.running("a").await;
    assert_eq!(vitals.health.readiness_failures(), Vec::<String>::new());
}

/// A server that gets its CRDs later: one without, and one with them.
fn either(bare: &EmbeddedApi, full: &EmbeddedApi, installed: &Arc<AtomicBool>) -> Client {
    let (bare, full, installed) = (bare.client(), full.client(), installed.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let full_now = installed.load(Ordering::Relaxed);
        let client = if full_now { full.clone() } else { bare.clone() };
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn readiness_names_missing_permission() {
    let mut cluster = TestCluster::without_controller();
    let forbidden = Failure::Code(StatusCode::FORBIDDEN);
    let faults = cluster.faults();
    faults.fail_next(usize::MAX, forbidden, |request| {
        request.verb == Verb::List && request.resource == "pods"
    });
    cluster.start_controller();
    let vitals = cluster.config.vitals.clone();
    sleep(Duration::from_mins(1)).await;
    let missing = vitals.health.readiness_failures();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let denied = "permission denied: list pods: ";
    assert!(missing[0].starts_with(denied), "{missing:?}");
    cluster.faults().clear_failures();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(vitals.health.readiness_failures(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn metrics_count_reconciles_starts_and_requests() {
    let mut cluster = TestCluster::without_controller();
    cluster.start_controller();
    let vitals = cluster.config.vitals.clone();
    for name in ["a", "b", "c"] {
        cluster.running(name).await;
    }
    cluster.bring("c", DesiredState::Paused).await;
    cluster.bring("c", DesiredState::Running).await;
    cluster.bring("b", DesiredState::Paused).await;
    sleep(Duration::from_mins(1)).await;
    let text = vitals.metrics.encode().unwrap();
    for line in [
        r#"sandbox_operator_sandboxes{phase="Running"} 2"#,
        r#"sandbox_operator_sandboxes{phase="Paused"} 1"#,
        r#"sandbox_operator_start_duration_seconds_count{kind="created"} 3"#,
        r#"sandbox_operator_start_duration_seconds_count{kind="resumed"} 1"#,
        r#"sandbox_operator_kubernetes_requests_total{verb="create",resource="pods",outcome="ok"} 4"#,
        "sandbox_operator_queue_depth 0",
        "sandbox_operator_leader 1",
        r#"sandbox_operator_events_total{outcome="written"} 7"#,
    ] {
        let found = text.lines().any(|l| l == line);
        assert!(found, "{line} is missing in\n{text}");
    }
    // No name of an object in any label.
    for name in ["\"a\"", "\"b\"", "default"] {
        assert!(!text.contains(name), "{name} in\n{text}");
    }
}
