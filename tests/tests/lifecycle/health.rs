//! Readiness checks of a controller with unmet dependencies, and recovery once they are met.

use std::time::Duration;

use crds::sandbox::DesiredState;
use http::StatusCode;
use tests::fault_injection::{Failure, RequestInfo, Verb};
use tests::test_cluster::TestCluster;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn readiness_names_missing_crd_or_permission_until_it_is_there() {
    let crds = ["sandboxes", "sandboxpools"];
    let missing = |kind| format!("CRD {kind}.openhands.dev is not installed");
    let denied = "permission denied: list pods: ".to_owned();
    for (code, resources, expected) in [
        (StatusCode::NOT_FOUND, &crds[..], crds.map(missing).to_vec()),
        (StatusCode::FORBIDDEN, &["pods"], vec![denied]),
    ] {
        let mut cluster = TestCluster::without_controller();
        let resources = resources.to_vec();
        let is_lacking = move |request: &RequestInfo| {
            let is_read = matches!(request.verb, Verb::List | Verb::Watch);
            is_read && resources.contains(&&*request.resource)
        };
        let faults = cluster.faults();
        faults.fail_next(usize::MAX, Failure::Code(code), is_lacking);
        cluster.start_controller();
        let vitals = cluster.config.vitals.clone();
        sleep(Duration::from_mins(30)).await;
        let failures = vitals.health.readiness_failures();
        assert_eq!(failures.len(), expected.len(), "{failures:?}");
        for (failure, expected) in failures.iter().zip(expected) {
            assert!(failure.starts_with(&expected), "{failure}");
        }
        assert!(vitals.health.liveness_failures().is_empty());

        cluster.faults().clear_failures();
        cluster.running("a").await;
        assert_eq!(vitals.health.readiness_failures(), Vec::<String>::new());
    }
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
