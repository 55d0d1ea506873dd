//! Dispatches a request to a sandbox, if its host or path names one, or else to the API. A panic
//! becomes a response here.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use tower::ServiceExt as _;
use tracing::{Instrument as _, Span};

use super::Gateway;
use super::access_log::{RequestRecord, RequestTrace};
use super::api::ApiError;
use super::client_address::{ClientAddress, ClientConnection, X_FORWARDED_FOR};
use super::console;
use super::mcp;
use super::proxy::{ProxyError, Target};
use shared::admin_server;

/// The metrics are also on this port (`docs/specs/runtime-api.md`, section 1.12), for scrapers in the
/// cluster. An Ingress cannot leave out a path, but it adds a header to what it forwards.
const METRICS: &str = "/metrics";

impl Gateway {
    /// Answers one request of a client. Errors become responses.
    pub async fn respond(
        &self,
        mut request: Request<Body>,
        connection: impl Into<ClientConnection>,
    ) -> Response<Body> {
        let ClientConnection { peer, local } = connection.into();
        let trusted = &self.0.config.trusted_proxies;
        let client = ClientAddress::of(peer, request.headers(), trusted);
        let target = self.0.proxy.target(&request, local);
        let known = target.as_ref().ok();
        let traces = self.0.config.vitals.traces.get();
        let is_traced_call = traces.is_some() && matches!(known, Some(Target::Api));
        let route = is_traced_call.then(|| fixed_route(request.uri().path()));
        let trace = RequestTrace::begin(traces, &mut request, known, route.flatten());
        let span = span(known, &trace.id);
        let record = RequestRecord::begin(&self.0.metrics, &request, known, client.ip, trace);
        let answer = async {
            match target {
                Ok(Target::Sandbox(route)) => self.0.proxy.forward(route, request, &client).await,
                Ok(Target::Api) => self.handle_api(request, client, peer).await,
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

    /// The response to a request for which no memory is left. It is counted and not logged, because
    /// a flood of requests must not become a flood of log lines.
    pub(super) fn reject_overloaded(&self) -> Response<Body> {
        self.0.metrics.overloads.inc();
        ProxyError::Overloaded.into_response()
    }

    async fn handle_api(
        &self,
        request: Request<Body>,
        client: ClientAddress,
        peer: SocketAddr,
    ) -> Response<Body> {
        let console = self.0.console.as_ref();
        if let Some(response) = console.and_then(|console| console.respond(&request)) {
            return response;
        }
        let mut request = super::api::normalize_path(request);
        if request.uri().path() == mcp::PATH
            && let Some(mcp) = &self.0.mcp
        {
            return mcp.respond(request, client, peer).await;
        }
        let client = SocketAddr::new(client.ip, peer.port());
        request.extensions_mut().insert(ConnectInfo(client));
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_direct = !request.headers().contains_key(X_FORWARDED_FOR);
        if is_read && is_direct && request.uri().path() == METRICS {
            return admin_server::metrics_response(&self.0.config.vitals);
        }
        let Ok(response) = self.0.api.clone().oneshot(request).await;
        response
    }
}

/// Span of a request, with its trace. Requests to sandboxes are frequent and log at `debug` only.
fn span(target: Option<&Target>, trace: &str) -> Span {
    let trace_id = trace;
    if let Some(Target::Sandbox(route)) = target {
        tracing::debug_span!("request", trace_id, id = route.id)
    } else {
        tracing::info_span!("request", trace_id)
    }
}

/// Route of a path that is not of the API's router.
fn fixed_route(path: &str) -> Option<&'static str> {
    let path = path.trim_matches('/');
    let is = |route: &str| path == route.trim_matches('/');
    if is(mcp::PATH) {
        return Some(mcp::PATH);
    }
    if is(METRICS) {
        return Some(METRICS);
    }
    let below = path.strip_prefix(console::PATH.trim_matches('/'))?;
    matches!(below.chars().next(), None | Some('/')).then_some("/console/{file}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_outside_of_the_api_have_templates() {
        for (path, route) in [
            ("//mcp/", Some("/mcp")),
            ("/metrics", Some("/metrics")),
            ("/console", Some("/console/{file}")),
            ("/console/assets/a-1.js", Some("/console/{file}")),
            ("/consoles", None),
            ("/sessions/personal", None),
        ] {
            assert_eq!(fixed_route(path), route, "{path}");
        }
    }
}
