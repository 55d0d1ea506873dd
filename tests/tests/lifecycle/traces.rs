//! One trace from the request that creates a sandbox to its readiness, and spans of reconciles.

use std::sync::Arc;
use std::time::Duration;

use crds::sandbox::{DesiredState, Phase};
use operator::diagnostics::Diagnostics;
use operator::traces::{TraceSettings, Traces};
use testing::{CollectorBehavior, FakeCollector};
use tests::test_cluster::{TestCluster, start_body};
use tokio::time::sleep;

fn export(diagnostics: &Diagnostics, service: &'static str, collector: &FakeCollector) {
    let settings = TraceSettings::read(|name| {
        (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| collector.endpoint.clone())
    });
    let settings = settings.unwrap().unwrap();
    let traces = Traces::open(settings, service, &diagnostics.metrics).unwrap();
    diagnostics.traces.set(traces).unwrap();
}

#[tokio::test(start_paused = true)]
async fn start_belongs_to_the_trace_of_its_request() {
    let collector = FakeCollector::start(CollectorBehavior::Accepts).await;
    let cluster = TestCluster::new();
    let of_controller = cluster.config.vitals.clone();
    export(&of_controller, "sandbox-controller", &collector);
    let of_gateway = Arc::<Diagnostics>::default();
    export(&of_gateway, "sandbox-gateway", &collector);
    let gateway = cluster.gateway_with(of_gateway.clone()).await;
    cluster.supervisors.never_ready();
    let info = gateway.start(&start_body("s1")).await;
    let id = info["runtime_id"].as_str().unwrap();
    cluster.wait_for_phase(id, Phase::Starting).await;
    sleep(Duration::from_secs(3)).await;
    cluster.supervisors.ready_by_default();
    cluster.wait_for_phase(id, Phase::Running).await;
    // The resumed start is not of the request that created the sandbox.
    cluster.bring(id, DesiredState::Paused).await;
    cluster.bring(id, DesiredState::Running).await;
    // Until the last reconcile has ended.
    sleep(Duration::from_secs(1)).await;
    for diagnostics in [&of_gateway, &of_controller] {
        diagnostics.traces.get().unwrap().close().await;
    }

    let request = &collector.named("POST /start")[0];
    let starts = collector.named("start sandbox");
    let kinds: Vec<_> = starts
        .iter()
        .map(|of| &*of.attributes["sandbox.start"])
        .collect();
    assert_eq!(kinds, ["created", "resumed"]);
    let (created, resumed) = (&starts[0], &starts[1]);
    assert_eq!(
        (&created.trace, &created.parent),
        (&request.trace, &request.id)
    );
    assert_ne!(resumed.trace, request.trace);
    assert_eq!(created.attributes["service.name"], "sandbox-controller");
    assert_eq!(created.attributes["sandbox.id"], id);
    let seconds = Duration::from_nanos(created.end - created.start).as_secs();
    assert!(seconds >= 3, "{created:?}");
    let stages = collector.named("wait for readiness");
    let stage = stages.iter().find(|stage| stage.parent == created.id);
    assert_eq!(stage.unwrap().end, created.end);

    let reconciles = collector.named("reconcile");
    let phases = ["sandbox.phase.before", "sandbox.phase.after"];
    let became_ready = reconciles.iter().find(|span| {
        let phase = |name: &str| span.attributes.get(name).map(String::as_str);
        phases.map(phase) == [Some("Starting"), Some("Running")]
    });
    let span = became_ready.unwrap();
    assert_eq!((&*span.parent, span.kind), ("", 1));
    assert_eq!(span.attributes["sandbox.name"], id);
    assert_eq!(span.attributes["reconcile.result"], "ok");
}
