//! What a controller says while something that it needs is missing, and that it goes on when it is
//! there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::sandbox::Phase;
use http::{Request, StatusCode};
use kube::Client;
use kube::client::Body;
use standalone::api::{EmbeddedApi, Failure, Options, Outage, Verb};
use tests::world::World;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn a_missing_crd_is_named_and_waited_for() {
    let mut world = World::without_controller();
    let bare = EmbeddedApi::in_memory(Options::for_tests(Vec::new()));
    let installed = Arc::new(AtomicBool::new(false));
    world.client = either(&bare, &world.api, &installed);
    world.start_controller();
    let vitals = world.config.vitals.clone();
    sleep(Duration::from_mins(30)).await;
    let missing = vitals.health.missing();
    assert_eq!(
        missing,
        [
            "CRD sandboxes.openhands.dev is not installed",
            "CRD sandboxpools.openhands.dev is not installed"
        ]
    );
    assert!(vitals.health.stuck().is_empty());

    installed.store(true, Ordering::Relaxed);
    world.create("a").await;
    world.phase("a", Phase::Running).await;
    assert_eq!(vitals.health.missing(), Vec::<String>::new());
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
    let mut world = World::without_controller();
    let forbidden = Failure::Code(StatusCode::FORBIDDEN);
    world
        .api
        .faults()
        .fail_next(usize::MAX, forbidden, |request| {
            request.verb == Verb::List && request.resource == "pods"
        });
    world.start_controller();
    let vitals = world.config.vitals.clone();
    sleep(Duration::from_mins(1)).await;
    let missing = vitals.health.missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].starts_with("may not list pods: "), "{missing:?}");
    world.api.faults().clear_failures();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(vitals.health.missing(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_named_and_no_reason_to_be_restarted() {
    for outage in [Outage::Refuse, Outage::Hang] {
        let mut world = World::without_controller();
        world.start_controller();
        let vitals = world.config.vitals.clone();
        world.create("a").await;
        world.phase("a", Phase::Running).await;
        assert!(vitals.health.missing().is_empty());
        world.api.faults().set_outage(outage);
        sleep(Duration::from_mins(20)).await;
        let missing = vitals.health.missing();
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(
            missing[0].starts_with("the API server has not answered for "),
            "{missing:?}"
        );
        assert_eq!(vitals.health.stuck(), Vec::<String>::new());
        world.api.faults().set_outage(Outage::None);
        sleep(Duration::from_secs(36)).await;
        assert_eq!(vitals.health.missing(), Vec::<String>::new(), "{outage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_of_passes_starts_and_requests() {
    let mut world = World::without_controller();
    world.start_controller();
    let vitals = world.config.vitals.clone();
    for name in ["a", "b", "c"] {
        world.create(name).await;
        world.phase(name, Phase::Running).await;
    }
    world.ask("c", crds::sandbox::DesiredState::Paused).await;
    world.phase("c", Phase::Paused).await;
    world.ask("c", crds::sandbox::DesiredState::Running).await;
    world.phase("c", Phase::Running).await;
    world.ask("b", crds::sandbox::DesiredState::Paused).await;
    world.phase("b", Phase::Paused).await;
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
