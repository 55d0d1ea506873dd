//! The access log: one counter, one duration and one log line per request.
//!
//! Lines contain no query, header or body, because tokens and keys are there. Successful requests
//! to sandboxes are logged at `debug`, since they are frequent; everything else at `info`.
//! `RUST_LOG=info,access=debug` shows all, `RUST_LOG=info,access=off` none.

mod trace_context;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::outcome::OutcomeTag;
use super::proxy::Target;
use shared::metrics::{GatewayMetrics, GaugeGuard};

pub(super) use trace_context::TraceContext;

/// Maximum length of a logged path in characters.
const MAX_LOGGED_PATH_CHARS: usize = 256;

/// One request, from its head to the last byte of the response.
#[derive(Debug)]
pub(super) struct RequestRecord {
    metrics: Arc<GatewayMetrics>,
    summary: RequestSummary,
    start: Instant,
    status: Option<StatusCode>,
    /// Outcome if the client stays to the end.
    outcome: &'static str,
    /// True if the client has received the whole response.
    is_complete: bool,
    bytes: u64,
    _in_flight: GaugeGuard,
}

#[derive(Debug)]
struct RequestSummary {
    /// `api`, `sandbox` or `nobody`.
    target: &'static str,
    /// Id of the sandbox and name of the port.
    sandbox: Option<(String, String)>,
    method: Method,
    path: String,
    client: IpAddr,
    trace: TraceContext,
}

/// A response body that notes its end.
struct RecordedBody {
    body: Body,
    record: RequestRecord,
}

impl RequestRecord {
    /// Begins a record; `target` is `None` for rejected requests.
    pub(super) fn begin(
        metrics: &Arc<GatewayMetrics>,
        request: &Request<Body>,
        target: Option<&Target>,
        client: IpAddr,
        trace: TraceContext,
    ) -> Self {
        let summary = RequestSummary::read(request, target, client, trace);
        let label = [("target", summary.target)];
        let in_flight = GaugeGuard::new(&metrics.in_flight.get_or_create(&label));
        Self {
            metrics: Arc::clone(metrics),
            summary,
            start: Instant::now(),
            status: None,
            outcome: "client-left",
            is_complete: false,
            bytes: 0,
            _in_flight: in_flight,
        }
    }

    /// Records the response head and wraps the body.
    pub(super) fn on_response(mut self, mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let tag = response.extensions_mut().remove::<OutcomeTag>();
        self.status = Some(status);
        self.outcome = tag.map_or_else(|| outcome_of(status), |OutcomeTag(outcome)| outcome);
        self.metrics
            .record_response_head(self.summary.target, self.start.elapsed());
        // The response to HEAD has no body to wait for.
        self.is_complete = self.summary.method == Method::HEAD;
        response.map(|body| Body::new(RecordedBody { body, record: self }))
    }

    /// True if a line is routine: a successful request to a sandbox, or a periodic one.
    fn is_routine(&self, outcome: &str) -> bool {
        let is_success = matches!(outcome, "ok" | "switched");
        let summary = &self.summary;
        is_success
            && (summary.target == "sandbox" || matches!(&*summary.path, "/health" | "/metrics"))
    }

    fn log(&self, outcome: &'static str, took: Duration) {
        let summary = &self.summary;
        let (id, port) = summary
            .sandbox
            .as_ref()
            .map(|(id, port)| (&**id, &**port))
            .unzip();
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    target: "access",
                    $level,
                    to = summary.target,
                    id,
                    port,
                    method = summary.method.as_str(),
                    path = &*summary.path,
                    status = self.status.map(|s| s.as_u16()),
                    outcome,
                    bytes = self.bytes,
                    milliseconds,
                    peer = %summary.client,
                    trace_id = summary.trace.id(),
                    "request",
                )
            };
        }
        if self.is_routine(outcome) {
            line!(tracing::Level::DEBUG);
        } else {
            line!(tracing::Level::INFO);
        }
    }
}

impl RequestSummary {
    fn read(
        request: &Request<Body>,
        target: Option<&Target>,
        client: IpAddr,
        trace: TraceContext,
    ) -> Self {
        let (name, sandbox) = match target {
            None => ("nobody", None),
            Some(Target::Api) => ("api", None),
            Some(Target::Sandbox(route)) => {
                ("sandbox", Some((route.id.clone(), route.port.clone())))
            }
        };
        Self {
            target: name,
            sandbox,
            method: request.method().clone(),
            path: request
                .uri()
                .path()
                .chars()
                .take(MAX_LOGGED_PATH_CHARS)
                .collect(),
            client,
            trace,
        }
    }
}

fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        101 => "switched",
        0..400 => "ok",
        400..500 => "client-error",
        _ => "server-error",
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let outcome = match (self.is_complete, self.outcome) {
            (true, outcome) | (false, outcome @ "broken-off") => outcome,
            (false, _) => "client-left",
        };
        self.metrics.record_end(self.summary.target, outcome);
        self.log(outcome, self.start.elapsed());
    }
}

impl HttpBody for RecordedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let record = &mut self.record;
        match &polled {
            Poll::Ready(None) => record.is_complete = true,
            Poll::Ready(Some(Err(_))) => record.outcome = "broken-off",
            Poll::Ready(Some(Ok(frame))) => {
                record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        self.record.is_complete |= self.body.is_end_stream();
    }
}
