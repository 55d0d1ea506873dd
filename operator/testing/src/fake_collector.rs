//! OTLP collector on loopback, which keeps the spans that it receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::net::TcpListener;

/// Treatment of exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorBehavior {
    Accepts,
    /// Answers 500.
    Fails,
    /// Never answers.
    Hangs,
}

/// Collector that runs as long as the runtime of the test; clones share its state.
#[derive(Debug, Clone)]
pub struct FakeCollector {
    /// Base URL.
    pub endpoint: String,
    received: Arc<Mutex<Received>>,
    behavior: CollectorBehavior,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<ReceivedSpan>,
    requests: usize,
    headers: HeaderMap,
}

/// One span. Ids are in hexadecimal digits; attributes include those of the process.
#[derive(Debug, Clone)]
pub struct ReceivedSpan {
    pub name: String,
    pub trace: String,
    pub id: String,
    /// Empty for a root.
    pub parent: String,
    /// 1: internal, 2: server.
    pub kind: i32,
    pub attributes: BTreeMap<String, String>,
    pub is_error: bool,
    /// Nanoseconds since 1970.
    pub start: u64,
    pub end: u64,
}

impl FakeCollector {
    pub async fn start(behavior: CollectorBehavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            received: Arc::default(),
            behavior,
        };
        let router = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// All spans so far, in the order in which they ended.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.received.lock().spans.clone()
    }

    /// Spans of this name.
    pub fn named(&self, name: &str) -> Vec<ReceivedSpan> {
        let mut spans = self.spans();
        spans.retain(|span| span.name == name);
        spans
    }

    /// Number of requests so far.
    pub fn requests(&self) -> usize {
        self.received.lock().requests
    }

    /// A header of the last request.
    pub fn header(&self, name: &str) -> Option<String> {
        let received = self.received.lock();
        Some(received.headers.get(name)?.to_str().ok()?.to_owned())
    }
}

async fn receive(
    State(collector): State<FakeCollector>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    {
        let mut received = collector.received.lock();
        received.requests += 1;
        received.headers = headers;
        if collector.behavior == CollectorBehavior::Accepts {
            received.spans.extend(spans(request));
        }
    }
    match collector.behavior {
        CollectorBehavior::Accepts => StatusCode::OK,
        CollectorBehavior::Fails => StatusCode::INTERNAL_SERVER_ERROR,
        CollectorBehavior::Hangs => std::future::pending().await,
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<ReceivedSpan> {
    let mut all = Vec::new();
    for process in request.resource_spans {
        let resource = process.resource.unwrap_or_default().attributes;
        let spans = process.scope_spans.into_iter().flat_map(|of| of.spans);
        all.extend(spans.map(|span| read(span, &resource)));
    }
    all
}

fn read(span: Span, resource: &[KeyValue]) -> ReceivedSpan {
    let attributes = resource.iter().chain(&span.attributes);
    let attributes = attributes.map(|pair| (pair.key.clone(), text(pair.value.as_ref())));
    ReceivedSpan {
        attributes: attributes.collect(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        is_error: span.status.is_some_and(|of| of.code() == SpanStatus::Error),
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
        name: span.name,
    }
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}
