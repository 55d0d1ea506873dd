//! Spans of requests, as a collector receives them.

use std::sync::Arc;

use http::{HeaderValue, Request};
use http_body_util::BodyExt as _;
use operator::diagnostics::Diagnostics;
use operator::gateway::GatewayConfig;
use operator::traces::{TraceSettings, Traces};
use serde_json::json;
use tokio::time::{Duration, timeout};

use crate::support::gateway_fixture::{GatewayFixture, KEY, config};
use crate::support::socket_fixture::{OK, SocketFixture};
use testing::{CollectorBehavior, FakeApi, FakeCollector, ReceivedSpan};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A gateway's configuration with spans for this collector, and more variables.
fn traced(collector: &FakeCollector, more: &[(&str, &str)]) -> GatewayConfig {
    let vitals = Arc::new(Diagnostics::default());
    let settings = TraceSettings::read(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.endpoint.clone()),
        _ => more
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned()),
    });
    let settings = settings.unwrap().unwrap();
    let traces = Traces::open(settings, "sandbox-gateway", &vitals.metrics).unwrap();
    vitals.traces.set(traces).unwrap();
    GatewayConfig { vitals, ..config() }
}

async fn close(vitals: &Diagnostics) {
    vitals.traces.get().unwrap().close().await;
}

fn attributes<'a>(span: &'a ReceivedSpan, names: &[&str]) -> Vec<Option<&'a str>> {
    let value = |name: &&str| span.attributes.get(*name).map(String::as_str);
    names.iter().map(value).collect()
}

fn with_parent(path: &str, parent: &str) -> Request<axum::body::Body> {
    Request::get(path)
        .header("host", "api.example.com")
        .header("x-api-key", KEY)
        .header("traceparent", parent)
        .body(axum::body::Body::empty())
        .unwrap()
}

#[tokio::test]
async fn span_of_a_call_has_route_status_and_parent_and_nothing_personal() {
    let collector = FakeCollector::start(CollectorBehavior::Accepts).await;
    let more = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=a%20b"),
        ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=c"),
    ];
    let config = traced(&collector, &more);
    let vitals = config.vitals.clone();
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    for path in ["/sessions/personal?x=personal", "/personal", "//metrics"] {
        let request = with_parent(path, &format!("00-{TRACE}-{SPAN}-01"));
        let body = fixture.send(request).await.into_body();
        body.collect().await.unwrap();
    }
    close(&vitals).await;

    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(
        names,
        ["GET /sessions/{*session_id}", "GET", "GET /metrics"]
    );
    for span in &spans {
        assert_eq!((&*span.trace, &*span.parent, span.kind), (TRACE, SPAN, 2));
        let process = attributes(span, &["service.name", "k8s.cluster.name"]);
        assert_eq!(process, [Some("sandbox-gateway"), Some("c")]);
        assert!(!format!("{span:?}").contains("personal"), "{span:?}");
    }
    let call = [
        "http.request.method",
        "http.route",
        "http.response.status_code",
        "sandbox.outcome",
    ];
    let expected = ["GET", "/sessions/{*session_id}", "404", "client-error"].map(Some);
    assert_eq!(attributes(&spans[0], &call), expected);
    assert_eq!(attributes(&spans[1], &call)[1], None);
    assert!(spans.iter().all(|span| !span.is_error));
    assert_eq!(collector.header("x-scope").as_deref(), Some("a b"));
}

#[tokio::test]
async fn sandbox_gets_the_span_of_its_request_as_parent() {
    let collector = FakeCollector::start(CollectorBehavior::Accepts).await;
    let config = traced(&collector, &[]);
    let vitals = config.vitals.clone();
    let fixture = SocketFixture::with(config).await;
    let request = format!(
        "GET /personal HTTP/1.1\nHost: HOST\nTraceparent: 00-{TRACE}-{SPAN}-01\nTracestate: a=1\n\n"
    );
    let (forwarded, _) = fixture.relay(&request, OK).await;
    let broken = "HTTP/1.1 503 Service Unavailable\nContent-Length: 0\n\n";
    let (unsampled, _) = fixture
        .relay(&request.replace("-01\n", "-00\n"), broken)
        .await;
    let (own, _) = fixture
        .relay("GET / HTTP/1.1\nHost: HOST\n\n", broken)
        .await;
    close(&vitals).await;

    let spans = collector.named("GET sandbox");
    assert_eq!(spans.len(), 2, "{spans:?}");
    let (first, second) = (&spans[0], &spans[1]);
    let parent = |span: &ReceivedSpan| format!("traceparent: 00-{}-{}-01\n", span.trace, span.id);
    assert_eq!((&*first.trace, &*first.parent), (TRACE, SPAN));
    assert!(forwarded.contains(&parent(first)), "{forwarded}");
    assert!(forwarded.contains("tracestate: a=1\n"), "{forwarded}");
    let unchanged = format!("traceparent: 00-{TRACE}-{SPAN}-00\n");
    assert!(unsampled.contains(&unchanged), "{unsampled}");
    assert_eq!(&*second.parent, "");
    assert_ne!(&*second.trace, TRACE);
    assert!(own.contains(&parent(second)), "{own}");
    assert!(second.is_error && !first.is_error);
    let names = ["sandbox.id", "sandbox.port", "http.response.status_code"];
    let expected = [Some(&*fixture.id), Some("runtime"), Some("200")];
    assert_eq!(attributes(first, &names), expected);
    assert!(!format!("{spans:?}").contains("personal"));
}

#[tokio::test]
async fn start_writes_the_parent_for_the_controller_if_it_is_sampled() {
    let collector = FakeCollector::start(CollectorBehavior::Accepts).await;
    let config = traced(&collector, &[]);
    let vitals = config.vitals.clone();
    let fixture = GatewayFixture::beside(&FakeApi::default(), config);
    let (_, info) = fixture.start(json!({})).await;
    let stored = fixture.stored(info["runtime_id"].as_str().unwrap());
    close(&vitals).await;
    let span = &collector.named("POST /start")[0];
    let annotations = stored.metadata.annotations.unwrap();
    let parent = format!("00-{}-{}-01", span.trace, span.id);
    assert_eq!(annotations["openhands.dev/traceparent"], parent);

    let plain = GatewayFixture::new();
    let (_, info) = plain.start(json!({})).await;
    let stored = plain.stored(info["runtime_id"].as_str().unwrap());
    assert_eq!(stored.metadata.annotations, None);
}

#[tokio::test]
async fn absent_collector_delays_neither_requests_nor_the_end() {
    for behavior in [CollectorBehavior::Hangs, CollectorBehavior::Fails] {
        let collector = FakeCollector::start(behavior).await;
        let config = traced(&collector, &[]);
        let vitals = config.vitals.clone();
        let fixture = GatewayFixture::beside(&FakeApi::default(), config);
        // More spans than the queue and two batches hold.
        for _ in 0..4000 {
            let response = fixture.send(with_parent("/health", "")).await;
            assert_eq!(response.headers().get("traceparent"), None::<&HeaderValue>);
        }
        // The bound is two seconds; the exports that wait would take more than twenty.
        let closed = timeout(Duration::from_secs(15), close(&vitals)).await;
        assert!(closed.is_ok() && collector.requests() > 0, "{behavior:?}");
        let metrics = vitals.metrics.encode().unwrap();
        let count = |outcome: &str| {
            let prefix = format!("sandbox_operator_trace_spans_total{{outcome=\"{outcome}\"}} ");
            let mut lines = metrics.lines();
            let value = lines.find_map(|line| line.strip_prefix(&prefix));
            value.unwrap().parse::<u64>().unwrap()
        };
        assert!(count("dropped") > 0, "{metrics}");
        assert_eq!(count("exported"), 0, "{metrics}");
    }
}
