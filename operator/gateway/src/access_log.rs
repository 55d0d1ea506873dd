//! The access log: one counter, one duration, one log line and one span per request.
//!
//! Lines contain no query, header or body, because tokens and keys are there. Successful requests
//! to sandboxes are logged at `debug`, since they are frequent; everything else at `info`.
//! `RUST_LOG=info,access=debug` shows all, `RUST_LOG=info,access=off` none.

mod request_span;
mod trace_context;

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode};
use tokio::time::Instant;

use super::api::{OutcomeTag, RouteTag};
use super::observed::{BodyObserver, ObservedBody, PolledFrame};
use super::proxy::Target;
use shared::metrics::{GatewayMetrics, GaugeGuard};

pub(super) use trace_context::RequestTrace;

const MAX_LOGGED_PATH_CHARS: usize = 256;

/// One request, from its head to the last byte of the response.
#[derive(Debug)]
pub(super) struct RequestRecord {
    metrics: Arc<GatewayMetrics>,
    /// `api`, `sandbox` or `none`.
    target: &'static str,
    /// Id of the sandbox and name of the port.
    sandbox: Option<(String, String)>,
    method: Method,
    path: String,
    client: IpAddr,
    trace: RequestTrace,
    start: Instant,
    status: Option<StatusCode>,
    /// Outcome if the client stays to the end.
    outcome: &'static str,
    /// True if the client has received the whole response.
    is_complete: bool,
    bytes: u64,
    _in_flight: GaugeGuard,
}

impl RequestRecord {
    /// Begins a record; `target` is `None` for rejected requests.
    pub(super) fn begin(
        metrics: &Arc<GatewayMetrics>,
        request: &Request<Body>,
        target: Option<&Target>,
        client: IpAddr,
        trace: RequestTrace,
    ) -> Self {
        let (target, sandbox) = match target {
            None => ("none", None),
            Some(Target::Api) => ("api", None),
            Some(Target::Sandbox(route)) => {
                ("sandbox", Some((route.id.clone(), route.port.clone())))
            }
        };
        let path = request.uri().path().chars().take(MAX_LOGGED_PATH_CHARS);
        let in_flight = metrics.in_flight.get_or_create(&[("target", target)]);
        Self {
            metrics: Arc::clone(metrics),
            target,
            sandbox,
            method: request.method().clone(),
            path: path.collect(),
            client,
            trace,
            start: Instant::now(),
            status: None,
            outcome: "client-left",
            is_complete: false,
            bytes: 0,
            _in_flight: GaugeGuard::new(&in_flight),
        }
    }

    /// Records the response head and wraps the body.
    pub(super) fn on_response(mut self, mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let tag = response.extensions_mut().remove::<OutcomeTag>();
        let route = response.extensions_mut().remove::<RouteTag>();
        if let (Some(span), Some(RouteTag(endpoint))) = (&mut self.trace.span, route) {
            request_span::set_endpoint(span, &self.method, &endpoint);
        }
        self.status = Some(status);
        self.outcome = tag.map_or_else(|| outcome_of(status), |OutcomeTag(outcome)| outcome);
        self.metrics
            .record_response_head(self.target, self.start.elapsed());
        // The response to HEAD has no body to wait for.
        self.is_complete = self.method == Method::HEAD;
        response.map(|body| Body::new(ObservedBody::new(body, self)))
    }

    /// True if a line is routine: a successful request to a sandbox, or a periodic one.
    fn is_routine(&self, outcome: &str) -> bool {
        let is_success = matches!(outcome, "ok" | "switched");
        is_success && (self.target == "sandbox" || matches!(&*self.path, "/health" | "/metrics"))
    }

    fn log(&self, outcome: &'static str, took: Duration) {
        let sandbox = self.sandbox.as_ref();
        let (id, port) = sandbox.map(|(id, port)| (&**id, &**port)).unzip();
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    target: "access",
                    $level,
                    to = self.target,
                    id,
                    port,
                    method = self.method.as_str(),
                    path = &*self.path,
                    status = self.status.map(|s| s.as_u16()),
                    outcome,
                    bytes = self.bytes,
                    milliseconds,
                    peer = %self.client,
                    trace_id = self.trace.id,
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
        self.metrics.record_end(self.target, outcome);
        if let Some(span) = &mut self.trace.span {
            request_span::finish(span, self.status, outcome);
        }
        self.log(outcome, self.start.elapsed());
    }
}

impl BodyObserver for RequestRecord {
    fn on_read(&mut self, _: &mut Context<'_>, read: PolledFrame) -> PolledFrame {
        match &read {
            Poll::Ready(None) => self.is_complete = true,
            Poll::Ready(Some(Err(_))) => self.outcome = "broken-off",
            Poll::Ready(Some(Ok(frame))) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            Poll::Pending => {}
        }
        read
    }

    fn on_end(&mut self, is_complete: bool) {
        self.is_complete |= is_complete;
    }
}
