//! Dispatches a request to a sandbox, if its host or path names one, or else to the API. A panic
//! becomes a response here.

use std::net::{IpAddr, SocketAddr};
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

use super::access_log::{RequestRecord, TraceContext};
use super::api::ApiError;
use super::client_address::ClientConnection;
use super::proxy::{Proxy, ProxyError, Target};
use shared::admin_server;
use shared::diagnostics::Diagnostics;
use shared::metrics::GatewayMetrics;

/// The metrics are also on this port (`docs/specs/runtime-api.md`, section 1.12).
const METRICS: &str = "/metrics";

#[derive(Debug)]
pub(super) struct Dispatch {
    api: Router,
    proxy: Proxy,
    metrics: Arc<GatewayMetrics>,
    vitals: Arc<Diagnostics>,
}

impl Dispatch {
    pub(super) fn new(
        api: Router,
        proxy: Proxy,
        metrics: Arc<GatewayMetrics>,
        vitals: Arc<Diagnostics>,
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
        connection: ClientConnection,
    ) -> Response<Body> {
        let client = self
            .proxy
            .client_address(connection.peer, request.headers());
        let trace = TraceContext::from_headers(request.headers_mut());
        let target = self.target(&request, connection.local);
        let known = target.as_ref().ok();
        let span = span(known, &trace);
        let record = RequestRecord::begin(&self.metrics, &request, known, client.ip, trace);
        let answer = async {
            match target {
                Ok(Target::Sandbox(route)) => self.proxy.forward(route, request, &client).await,
                Ok(Target::Api) => {
                    let client = SocketAddr::new(client.ip, connection.peer.port());
                    self.handle_api(request, client).await
                }
                Err(error) => error.into_response(),
            }
        };
        // The state of a request is its own, so a panic leaves nothing inconsistent.
        let answer = AssertUnwindSafe(answer).catch_unwind().instrument(span);
        let response = answer.await.unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            ApiError::Panicked.into_response()
        });
        record.on_response(response)
    }

    fn target(
        &self,
        request: &Request<Body>,
        local: Option<IpAddr>,
    ) -> Result<Target, DispatchError> {
        // CONNECT would open a tunnel to any address, and TRACE returns headers that the gateway
        // adds.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return Err(DispatchError::Method);
        }
        self.proxy
            .target(request, local)
            .map_err(DispatchError::Proxy)
    }

    async fn handle_api(&self, request: Request<Body>, client: SocketAddr) -> Response<Body> {
        let mut request = super::api::normalize_path(request);
        request.extensions_mut().insert(ConnectInfo(client));
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        if is_read && request.uri().path() == METRICS {
            return admin_server::metrics_response(&self.vitals);
        }
        let Ok(response) = self.api.clone().oneshot(request).await;
        response
    }
}

/// Reason why a request has no target.
enum DispatchError {
    Method,
    Proxy(ProxyError),
}

impl DispatchError {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::Method => ApiError::WrongMethod.into_response(),
            Self::Proxy(error) => error.into_response(),
        }
    }
}

/// Span of a request, with its trace. Requests to sandboxes are frequent and log at `debug` only.
fn span(target: Option<&Target>, trace: &TraceContext) -> Span {
    let trace_id = trace.id();
    if let Some(Target::Sandbox(route)) = target {
        tracing::debug_span!("request", trace_id, id = route.id)
    } else {
        tracing::info_span!("request", trace_id)
    }
}
