//! Spans of requests, reconciles and starts, exported by OTLP (protobuf over HTTP).
//!
//! Ended spans wait in a bounded queue for a thread that exports batches. Neither a slow nor an
//! absent collector delays anything else: spans beyond the queue are dropped and counted.

mod counters;
mod exporter;
mod http_client;
mod processor;
mod settings;
mod span;
mod trace_parent;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, TraceContextExt as _, TraceState, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::metrics::Metrics;
use counters::SpanCounters;
use processor::BoundedProcessor;

pub use settings::{TraceSettings, TraceSettingsError};
pub use span::Span;
pub use trace_parent::{TRACEPARENT, TraceParent};

/// Instrumentation scope of all spans.
const SCOPE: &str = "sandbox-operator";
/// Time for the export of the last spans when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Tracer of a process, with its exporter.
#[derive(Debug)]
pub struct Traces {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

/// Failure to set up the export of spans.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    #[error(transparent)]
    Settings(#[from] TraceSettingsError),
    /// The client or the exporter cannot be made.
    #[error("cannot set up the export of traces: {0}")]
    Exporter(String),
}

impl Traces {
    /// Starts the export. `service` is the service name unless the settings have one. Must be
    /// called in a tokio runtime, which sends the batches.
    pub fn open(
        settings: TraceSettings,
        service: &'static str,
        metrics: &Metrics,
    ) -> Result<Self, TracesError> {
        let counters = SpanCounters::register(metrics);
        let client = http_client::CollectorClient::new().map_err(TracesError::Exporter)?;
        let exporter = exporter::build(&settings, client).map_err(TracesError::Exporter)?;
        let processor = BoundedProcessor::new(exporter, counters);
        let provider = SdkTracerProvider::builder()
            .with_sampler(settings.sampler)
            .with_resource(resource(service, settings.resource))
            .with_span_processor(processor)
            .build();
        Ok(Self {
            tracer: provider.tracer(SCOPE),
            provider,
        })
    }

    /// Starts the span of a request that this process serves. `None` if it is not sampled.
    pub fn server_span(
        &self,
        name: impl Into<Cow<'static, str>>,
        parent: Option<&TraceParent>,
    ) -> Option<Span> {
        self.start(name.into(), SpanKind::Server, parent, None)
    }

    /// Starts the span of a step of this process that began at `start`, or begins now. `None` if it
    /// is not sampled.
    pub fn internal_span(
        &self,
        name: impl Into<Cow<'static, str>>,
        parent: Option<&TraceParent>,
        start: Option<Timestamp>,
    ) -> Option<Span> {
        self.start(name.into(), SpanKind::Internal, parent, start)
    }

    fn start(
        &self,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: Option<&TraceParent>,
        start: Option<Timestamp>,
    ) -> Option<Span> {
        let mut builder = self.tracer.span_builder(name).with_kind(kind);
        builder.start_time = start.map(SystemTime::from);
        let context = parent.map_or_else(Context::new, remote_context);
        let span = self.tracer.build_with_context(builder, &context);
        span.is_recording().then(|| Span::new(span))
    }

    /// Exports the spans that have ended, for at most two seconds, and stops.
    pub async fn close(&self) {
        let provider = self.provider.clone();
        let flush = move || provider.shutdown_with_timeout(FLUSH_TIMEOUT);
        let flushed = tokio::task::spawn_blocking(flush).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("some spans were not exported before the shutdown");
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // Without it, the provider would wait for its last export here.
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
    }
}

fn remote_context(parent: &TraceParent) -> Context {
    let context = SpanContext::new(
        parent.trace_id,
        parent.span_id,
        parent.flags,
        true,
        TraceState::default(),
    );
    Context::new().with_remote_span_context(context)
}

fn resource(service: &'static str, attributes: Vec<KeyValue>) -> Resource {
    let defaults = [
        KeyValue::new("service.name", service),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("telemetry.sdk.language", "rust"),
        KeyValue::new("telemetry.sdk.name", "opentelemetry"),
    ];
    // Later attributes replace earlier ones.
    Resource::builder_empty()
        .with_attributes(defaults)
        .with_attributes(attributes)
        .build()
}
