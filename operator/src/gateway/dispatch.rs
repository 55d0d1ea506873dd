//! Decides who answers a request: a sandbox, if host or path name one, or else the API. The last
//! net as well: a panic on the way becomes an answer.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span};

use super::api::ApiError;
use super::observe::{Observation, Trace};
use super::proxy::{Proxy, ProxyError, Target};
use crate::admin;
use crate::metrics::GatewayMetrics;
use crate::vitals::Vitals;

/// Measurements are public on this port as well (runtime API spec 1.12).
const METRICS: &str = "/metrics";

#[derive(Debug)]
pub(super) struct Dispatch {
    api: Router,
    proxy: Proxy,
    metrics: Arc<GatewayMetrics>,
    vitals: Arc<Vitals>,
}

impl Dispatch {
    pub(super) fn new(
        api: Router,
        proxy: Proxy,
        metrics: Arc<GatewayMetrics>,
        vitals: Arc<Vitals>,
    ) -> Self {
        Self {
            api,
            proxy,
            metrics,
            vitals,
        }
    }

    pub(super) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    pub(super) fn metrics(&self) -> &Arc<GatewayMetrics> {
        &self.metrics
    }

    pub(super) async fn respond(
        &self,
        mut request: Request<Body>,
        peer: SocketAddr,
    ) -> Response<Body> {
        let trace = Trace::of(request.headers_mut());
        let asked = self.target(&request);
        let target = asked.as_ref().ok();
        let span = span(target, &trace);
        let observation = Observation::begin(&self.metrics, &request, target, peer, trace);
        let answer = async {
            match asked {
                Ok(Target::Sandbox(route)) => self.proxy.forward(route, request, peer).await,
                Ok(Target::Api) => self.call_api(request, peer).await,
                Err(refusal) => refusal.into_response(),
            }
        };
        // A panic leaves nothing half-done behind: all state of a request is its own.
        let answer = AssertUnwindSafe(answer).catch_unwind().instrument(span);
        let response = answer.await.unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            ApiError::Panicked.into_response()
        });
        observation.answered(response)
    }

    fn target(&self, request: &Request<Body>) -> Result<Target, Refusal> {
        // One would make a tunnel to anywhere of it, the other shows headers that we add.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(Refusal::Method);
        }
        self.proxy.target(request).map_err(Refusal::Proxy)
    }

    async fn call_api(&self, request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        let mut request = super::api::normalise(request);
        request.extensions_mut().insert(ConnectInfo(peer));
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if reads && request.uri().path() == METRICS {
            return admin::measurements(&self.vitals);
        }
        let Ok(response) = self.api.clone().oneshot(request).await;
        response
    }
}

/// Why a request goes to nobody.
enum Refusal {
    Method,
    Proxy(ProxyError),
}

impl Refusal {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::Method => ApiError::WrongMethod.into_response(),
            Self::Proxy(error) => error.into_response(),
        }
    }
}

/// What is logged for a request carries its trace. Those to sandboxes are very many, and log nothing
/// above `debug`.
fn span(target: Option<&Target>, trace: &Trace) -> Span {
    let trace_id = trace.id();
    if let Some(Target::Sandbox(route)) = target {
        tracing::debug_span!("request", trace_id, id = route.id)
    } else {
        tracing::info_span!("request", trace_id)
    }
}
