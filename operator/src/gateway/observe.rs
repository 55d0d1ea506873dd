//! What is told of every request: one count, one duration, and one line of the access log at its end.
//!
//! Lines hold no query, no header and no body: that is where tokens and keys are. Requests that a
//! sandbox answered well are told at the level `debug`, since there are very many of them; everything
//! else at `info`. `RUST_LOG=info,access=debug` shows all, `RUST_LOG=info,access=off` none.

mod trace;

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use super::proxy::Target;
use crate::metrics::gateway::TargetLabel;
use crate::metrics::{GatewayMetrics, Raised};

pub(super) use trace::Trace;

/// Longest part of a path that is logged, in characters.
const LOGGED_PATH: usize = 256;

/// What became of a request, as a fixed word; an extension of answers that are made here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome(pub(super) &'static str);

/// One request, from its head to the last byte of the answer.
#[derive(Debug)]
pub(super) struct Observation {
    metrics: Arc<GatewayMetrics>,
    asked: Asked,
    start: Instant,
    status: Option<StatusCode>,
    /// Unless the client leaves before the end.
    outcome: &'static str,
    /// Whether the client has got all of the answer.
    is_whole: bool,
    bytes: u64,
    _under_way: Raised,
}

#[derive(Debug)]
struct Asked {
    /// `api`, `sandbox` or `nobody`.
    target: &'static str,
    /// Sandbox and port.
    sandbox: Option<(String, String)>,
    method: Method,
    path: String,
    peer: IpAddr,
    trace: Trace,
}

/// The body of an answer that is watched to its end.
struct Observed {
    body: Body,
    observation: Observation,
}

impl Observation {
    /// `target` is nobody for requests that are refused for what they are.
    pub(super) fn begin(
        metrics: &Arc<GatewayMetrics>,
        request: &Request<Body>,
        target: Option<&Target>,
        peer: SocketAddr,
        trace: Trace,
    ) -> Self {
        let asked = Asked::read(request, target, peer, trace);
        let label = TargetLabel {
            target: asked.target,
        };
        let under_way = Raised::new(&metrics.under_way.get_or_create(&label));
        Self {
            metrics: Arc::clone(metrics),
            asked,
            start: Instant::now(),
            status: None,
            outcome: "client-left",
            is_whole: false,
            bytes: 0,
            _under_way: under_way,
        }
    }

    /// Takes note of the head, and watches the body.
    pub(super) fn answered(mut self, mut response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let named = response.extensions_mut().remove::<Outcome>();
        self.status = Some(status);
        self.outcome = named.map_or_else(|| word(status), |Outcome(word)| word);
        self.metrics
            .answered(self.asked.target, self.start.elapsed());
        // Nothing follows such a head, so nobody looks whether it does.
        self.is_whole = self.asked.method == Method::HEAD;
        response.map(|body| {
            Body::new(Observed {
                body,
                observation: self,
            })
        })
    }

    /// Well answered, or asked by machines all the time.
    fn is_ordinary(&self, outcome: &str) -> bool {
        let fine = matches!(outcome, "ok" | "switched");
        let asked = &self.asked;
        fine && (asked.target == "sandbox" || matches!(&*asked.path, "/health" | "/metrics"))
    }

    fn log(&self, outcome: &'static str, took: Duration) {
        let asked = &self.asked;
        let (id, port) = asked
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
                    to = asked.target,
                    id,
                    port,
                    method = asked.method.as_str(),
                    path = &*asked.path,
                    status = self.status.map(|s| s.as_u16()),
                    outcome,
                    bytes = self.bytes,
                    milliseconds,
                    peer = %asked.peer,
                    trace_id = asked.trace.id(),
                    "request",
                )
            };
        }
        if self.is_ordinary(outcome) {
            line!(tracing::Level::DEBUG);
        } else {
            line!(tracing::Level::INFO);
        }
    }
}

impl Asked {
    fn read(
        request: &Request<Body>,
        target: Option<&Target>,
        peer: SocketAddr,
        trace: Trace,
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
            path: request.uri().path().chars().take(LOGGED_PATH).collect(),
            peer: peer.ip().to_canonical(),
            trace,
        }
    }
}

fn word(status: StatusCode) -> &'static str {
    match status.as_u16() {
        101 => "switched",
        0..400 => "ok",
        400..500 => "client-error",
        _ => "server-error",
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let outcome = match (self.is_whole, self.outcome) {
            (true, outcome) | (false, outcome @ "broken-off") => outcome,
            (false, _) => "client-left",
        };
        self.metrics.ended(self.asked.target, outcome);
        self.log(outcome, self.start.elapsed());
    }
}

impl HttpBody for Observed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let observation = &mut self.observation;
        match &polled {
            Poll::Ready(None) => observation.is_whole = true,
            Poll::Ready(Some(Err(_))) => observation.outcome = "broken-off",
            Poll::Ready(Some(Ok(frame))) => {
                observation.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
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

impl Drop for Observed {
    fn drop(&mut self) {
        self.observation.is_whole |= self.body.is_end_stream();
    }
}
