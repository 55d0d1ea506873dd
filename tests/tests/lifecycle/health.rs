//! Readiness checks of a controller with unmet dependencies, and recovery once they are met.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::sandbox::Phase;
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use standalone::api::{ApiOptions, EmbeddedApi, Failure, Outage, Verb};
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_missing_crd_is_named_and_waited_for() {
    let mut cluster = TestCluster::without_controller();
    let bare = EmbeddedApi::in_memory(ApiOptions::for_tests(Vec::new()));
    let installed = Arc::new(AtomicBool::new(false));
    cluster.client = either(&bare, &cluster.api, &installed);
    cluster.start_controller();
    let vitals = cluster.config.vitals.clone();
    sleep(Duration::from_mins(30)).await;
    let missing = vitals.health.readiness_failures();
    assert_eq!(
        missing,
        [
            "CRD sandboxes.openhands.dev is not installed",
            "CRD sandboxpools.openhands.dev is not installed"
        ]
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
async fn a_missing_permission_is_named() {
    let mut cluster = TestCluster::without_controller();
    let forbidden = Failure::Code(StatusCode::FORBIDDEN);
    cluster
        .api
        .faults()
        .fail_next(usize::MAX, forbidden, |request| {
            request.verb == Verb::List && request.resource == "pods"
        });
    cluster.start_controller();
    let vitals = cluster.config.vitals.clone();
    sleep(Duration::from_mins(1)).await;
    let missing = vitals.health.readiness_failures();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(
        missing[0].starts_with("permission denied: list pods: "),
        "{missing:?}"
    );
    cluster.api.faults().clear_failures();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(vitals.health.readiness_failures(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_named_and_no_reason_to_be_restarted() {
    for outage in [Outage::Refuse, Outage::Hang] {
        let mut cluster = TestCluster::without_controller();
        cluster.start_controller();
        let vitals = cluster.config.vitals.clone();
        cluster.running("a").await;
        assert!(vitals.health.readiness_failures().is_empty());
        cluster.api.faults().set_outage(outage);
        sleep(Duration::from_mins(20)).await;
        let missing = vitals.health.readiness_failures();
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(
            missing[0].starts_with("the API server has not responded for "),
            "{missing:?}"
        );
        assert_eq!(vitals.health.liveness_failures(), Vec::<String>::new());
        cluster.api.faults().set_outage(Outage::None);
        sleep(Duration::from_secs(36)).await;
        assert_eq!(
            vitals.health.readiness_failures(),
            Vec::<String>::new(),
            "{outage:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_of_passes_starts_and_requests() {
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
        assert!(
            text.lines().any(|l| l == line),
            "{line} is missing in\n{text}"
        );
    }
    // No name of an object in any label.
    for name in ["\"a\"", "\"b\"", "default"] {
        assert!(!text.contains(name), "{name} in\n{text}");
    }
}
