//! The reverse proxy to sandbox servers (`docs/specs/runtime-api.md`, section 4). Bodies are
//! streamed, responses have no deadline, and any upgrade becomes a tunnel.
//!
//! The upstream address comes from the index only: a client can name a sandbox, but no host.

mod activity;
mod address_proof;
mod admit;
mod body;
mod connector;
mod error;
mod headers;
mod live_lookups;
mod pod_address;
pub(super) mod pod_network;
#[cfg(any(test, feature = "fuzzing"))]
pub mod properties;
mod response_rewrite;
mod route;
mod supervisor;
mod tunnel_copy;
mod upgrade;
mod upstream;
mod wake;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse as _;
use crds::sandbox::DesiredState;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::GatewayConfig;
use super::client_address::ClientAddress;
use super::keyed_limit::{KeyedLimiter, KeyedPermit};
use super::observed::ObservedBody;
use super::sandboxes::Sandboxes;
use activity::{ActivityGuard, RequestKind};
use body::{ResponseObserver, RetryableBody};
use live_lookups::LiveLookupLimiter;
use shared::index::{Entry, Key};
use shared::metrics::GatewayMetrics;
use upgrade::Tunnels;
use upstream::{Upstream, Upstreams};
use wake::WakeScheduler;

pub(super) use error::ProxyError;
pub(super) use route::{Route, Target};

/// Time after readiness in which refused connections are retried. Readiness does not cover every
/// port: a command without `spec.ports` is ready after two seconds, and its server may listen later.
const PORT_START_WINDOW: Duration = Duration::from_secs(10);
const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_millis(250);

/// Held until the response or tunnel of a request has ended.
type RequestGuards = (ActivityGuard, KeyedPermit<Key>);

/// Response of a sandbox with its upstream and the activity that it counts as.
type UpstreamResponse = (Upstream, Response<Incoming>, ActivityGuard);

struct OutgoingRequest<'a> {
    route: &'a Route,
    parts: Parts,
    body: RetryableBody,
    kind: RequestKind,
}

impl OutgoingRequest<'_> {
    fn is_probe(&self) -> bool {
        self.kind == RequestKind::Probe
    }
}

/// Response of a sandbox whose body is still arriving.
struct ProxiedResponse {
    response: Response<Incoming>,
    /// Cancelled when the Pod is gone.
    gone: CancellationToken,
    guards: RequestGuards,
}

#[derive(Debug)]
pub(super) struct Proxy {
    sandboxes: Sandboxes,
    metrics: Arc<GatewayMetrics>,
    /// Host part of the base URL, without port.
    base_host: String,
    pub(super) upstreams: Upstreams,
    pub(super) tunnels: Tunnels,
    wakes: Arc<WakeScheduler>,
    live_lookups: LiveLookupLimiter,
    /// Concurrent requests of each sandbox, held ones included.
    request_limiter: KeyedLimiter<Key>,
    hold_slots: Semaphore,
}

impl Proxy {
    pub(super) fn new(sandboxes: Sandboxes, metrics: Arc<GatewayMetrics>) -> Self {
        let config = &sandboxes.config;
        Self {
            base_host: route::base_host(&config.urls.base),
            upstreams: Upstreams::new(config, metrics.upstream_connections.clone()),
            tunnels: Tunnels::new(metrics.tunnels.clone()),
            wakes: Arc::new(WakeScheduler::new(metrics.clone())),
            live_lookups: LiveLookupLimiter::default(),
            request_limiter: KeyedLimiter::default(),
            hold_slots: Semaphore::new(config.max_held_requests),
            sandboxes,
            metrics,
        }
    }

    fn config(&self) -> &GatewayConfig {
        &self.sandboxes.config
    }

    /// Forwards a request to its sandbox and returns the response while it is still arriving.
    pub(super) async fn forward(
        &self,
        route: Route,
        request: Request<Body>,
        client: &ClientAddress,
    ) -> Response<Body> {
        let result = self.proxy_request(&route, request, client).await;
        result.unwrap_or_else(|error| {
            tracing::debug!(id = route.id, category = error.kind().1, "{error}");
            error.into_response()
        })
    }

    async fn proxy_request(
        &self,
        route: &Route,
        mut request: Request<Body>,
        client: &ClientAddress,
    ) -> Result<Response<Body>, ProxyError> {
        headers::check_framing(&request)?;
        let upgrade = upgrade::take_upgrade(&mut request);
        let (mut parts, body) = request.into_parts();
        headers::to_upstream(&mut parts, route, client, &self.config().urls)?;
        headers::set_body_framing(&mut parts.headers, !body.is_end_stream());
        let rewriter = route.prefix.as_ref();
        let rewriter =
            rewriter.map(|prefix| response_rewrite::PrefixRewriter::new(prefix, &parts.headers));
        if let Some(upgrade) = &upgrade {
            upgrade.set_headers(&mut parts.headers);
        }
        let request = OutgoingRequest {
            route,
            kind: RequestKind::of(&parts),
            parts,
            body: RetryableBody::new(body),
        };
        let mut sent = self.send(&request).await?;
        let headers = sent.response.headers_mut();
        match rewriter {
            Some(rewriter) => rewriter.apply(headers),
            None => response_rewrite::strip_cookie_domains(headers),
        }
        let is_switch = sent.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match upgrade {
            // An upgrade to HTTP/2 was not offered, even if the server chose it.
            Some(_) if is_switch && upgrade::names_http2(sent.response.headers()) => {
                Err(ProxyError::Malformed)
            }
            Some(upgrade) if is_switch => Ok(self.tunnels.open(upgrade, sent)),
            _ => to_response(sent),
        }
    }

    /// Sends a request as soon as its sandbox is ready for it.
    async fn send(&self, request: &OutgoingRequest<'_>) -> Result<ProxiedResponse, ProxyError> {
        let entry = self.find(request.route).await?;
        // Acquired before a hold: a held request counts as a request of its sandbox.
        let limit = self.config().max_requests_per_sandbox;
        let permit = self.request_limiter.acquire(&entry.key, limit);
        let permit = permit.ok_or(ProxyError::SandboxBusy)?;
        let entry = self.admit(entry, request.is_probe()).await?;
        let (upstream, response, activity) = self.attempt(request, &entry).await?;
        Ok(ProxiedResponse {
            response,
            gone: upstream.pod.gone.clone(),
            guards: (activity, permit),
        })
    }

    /// Sends a request and retries it if that cannot repeat an effect: the index may still have the
    /// address of a deleted Pod, or not know yet that its server has crashed.
    async fn attempt(
        &self,
        request: &OutgoingRequest<'_>,
        entry: &Entry,
    ) -> Result<UpstreamResponse, ProxyError> {
        let can_retry = |sent: &Result<_, ProxyError>| match sent {
            Err(error) if request.body.is_untouched() => error.is_retryable(&request.parts.method),
            _ => false,
        };
        let mut sent = self.send_to(request, entry).await;
        if matches!(sent, Err(ProxyError::ConnectionBroken)) && can_retry(&sent) {
            // Only the pooled connection may have closed.
            sent = self.send_to(request, entry).await;
        }
        if matches!(sent, Err(ProxyError::Unreachable)) && can_retry(&sent) {
            sent = self.retry_until_port_listens(request, entry).await;
        }
        if let Err(error) = sent
            && can_retry(&sent)
        {
            let entry = self.readmit(entry, error, request.is_probe()).await?;
            sent = self.send_to(request, &entry).await;
        }
        match sent {
            Err(ProxyError::PodGone | ProxyError::ConnectionBroken) if self.is_paused(entry) => {
                Err(ProxyError::PausedMeanwhile)
            }
            done => done,
        }
    }

    /// Returns whether a sandbox is paused by now.
    fn is_paused(&self, entry: &Entry) -> bool {
        let now = self.sandboxes.index.get(&entry.key);
        now.is_some_and(|now| now.desired_state() == DesiredState::Paused)
    }

    /// Retries while the port may still be starting; a refused connection has sent nothing.
    async fn retry_until_port_listens(
        &self,
        request: &OutgoingRequest<'_>,
        entry: &Entry,
    ) -> Result<UpstreamResponse, ProxyError> {
        let (start, mut backoff) = (Instant::now(), INITIAL_BACKOFF);
        let _slot = self.acquire_hold_slot()?;
        while start.elapsed() < PORT_START_WINDOW && is_recent_start(entry, Timestamp::now()) {
            if self.has_changed_within(entry, backoff).await {
                break;
            }
            match self.send_to(request, entry).await {
                Err(ProxyError::Unreachable) => backoff = (backoff * 2).min(MAX_BACKOFF),
                done => return done,
            }
        }
        Err(ProxyError::Unreachable)
    }

    async fn send_to(
        &self,
        request: &OutgoingRequest<'_>,
        entry: &Entry,
    ) -> Result<UpstreamResponse, ProxyError> {
        let upstream = self.upstream(request.route, entry)?;
        let activity = upstream.pod.activity.clone().begin(request.kind);
        let attempt = request.body.attempt();
        let sent = self.upstreams.send(&upstream, &request.parts, attempt);
        let response = sent.await?;
        Ok((upstream, response, activity))
    }

    /// Closes the connections to deleted Pods, following the index.
    pub(super) async fn follow_pods(&self) {
        self.upstreams.follow(&self.sandboxes.index).await;
    }
}

/// Returns whether the sandbox became ready a moment ago. The clock of the controller may be ahead.
fn is_recent_start(entry: &Entry, now: Timestamp) -> bool {
    let window = SignedDuration::try_from(PORT_START_WINDOW).unwrap_or(SignedDuration::MAX);
    let ready_at = entry.status.ready_at.as_ref();
    ready_at.is_some_and(|at| now.duration_since(at.0) < window)
}

fn to_response(sent: ProxiedResponse) -> Result<Response<Body>, ProxyError> {
    let (mut parts, body) = sent.response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        // The client did not request an upgrade.
        return Err(ProxyError::Malformed);
    }
    headers::to_client(&mut parts.headers);
    parts.extensions.clear();
    let observer = ResponseObserver::new(sent.gone, sent.guards);
    let body = Body::new(ObservedBody::new(body, observer));
    Ok(Response::from_parts(parts, body))
}
