//! The reverse proxy to sandbox servers (`docs/specs/runtime-api.md`, section 4). Bodies are
//! streamed, responses have no deadline, and any upgrade becomes a tunnel.
//!
//! The upstream address comes from the index only: a client can name a sandbox, but no host.

mod activity;
mod address_proof;
mod admit;
mod body;
mod config;
mod connector;
mod error;
mod headers;
mod live_lookups;
mod loopback;
mod pod_address;
mod port_start;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod request_limit;
mod response_rewrite;
mod route;
mod upgrade;
mod upstream;
mod wake;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse as _;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use ipnet::IpNet;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::GatewayConfig;
use super::client_address::ClientAddress;
use super::sandboxes::Sandboxes;
use activity::{ActivityGuard, is_probe};
use body::{RetryableBody, StreamedResponseBody};
use live_lookups::LiveLookupLimiter;
use request_limit::{RequestLimiter, RequestPermit};
use shared::index::{Entry, Key};
use shared::metrics::GatewayMetrics;
use shared::traffic::Traffic;
use upstream::{Upstream, Upstreams};

pub use config::ProxyConfig;
pub use error::ProxyError;
pub use route::{Prefix, Route, Target};

/// Response of a sandbox with its upstream and the activity that it counts as.
type UpstreamResponse = (Upstream, Response<Incoming>, ActivityGuard);

/// Response of a sandbox whose body is still arriving.
struct ProxiedResponse {
    response: Response<Incoming>,
    /// Cancelled when the Pod is gone.
    gone: CancellationToken,
    /// Held until the response or tunnel has ended.
    guards: (ActivityGuard, RequestPermit),
}

/// The reverse proxy.
#[derive(Debug)]
pub struct Proxy {
    sandboxes: Sandboxes,
    config: Arc<GatewayConfig>,
    metrics: Arc<GatewayMetrics>,
    /// Host part of the rewriter URL, without port.
    base_host: String,
    upstreams: Upstreams,
    loopback_addresses: loopback::LoopbackAddresses,
    tunnels: upgrade::Tunnels,
    wakes: Arc<wake::WakeScheduler>,
    live_lookups: LiveLookupLimiter,
    request_limiter: RequestLimiter,
    /// Slots of held requests.
    hold_slots: Semaphore,
}

impl Proxy {
    pub(super) fn new(
        sandboxes: Sandboxes,
        config: Arc<GatewayConfig>,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        Self {
            base_host: route::base_host(&config.urls.base),
            upstreams: Upstreams::new(&config.proxy, metrics.upstream_connections.clone()),
            loopback_addresses: loopback::LoopbackAddresses::new(sandboxes.index.clone()),
            tunnels: upgrade::Tunnels::new(metrics.tunnels.clone()),
            wakes: Arc::new(wake::WakeScheduler::new(metrics.clone())),
            live_lookups: LiveLookupLimiter::default(),
            request_limiter: RequestLimiter::default(),
            hold_slots: Semaphore::new(config.proxy.held_requests),
            sandboxes,
            config,
            metrics,
        }
    }

    /// Networks of proxies that report their clients.
    pub(super) fn trusted_proxies(&self) -> &[IpNet] {
        &self.config.proxy.trusted_proxies
    }

    /// The client of a request that came from `peer`.
    pub(super) fn client_address(&self, peer: SocketAddr, headers: &HeaderMap) -> ClientAddress {
        ClientAddress::of(peer, headers, &self.config.proxy.trusted_proxies)
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
            tracing::debug!(id = route.id, category = error.category(), "{error}");
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
        headers::to_upstream(&mut parts, route, client, &self.config.urls)?;
        headers::set_body_framing(&mut parts.headers, !body.is_end_stream());
        let rewriter = route.prefix.as_ref();
        let rewriter =
            rewriter.map(|prefix| response_rewrite::PrefixRewriter::new(prefix, &parts.headers));
        if let Some(upgrade) = &upgrade {
            upgrade.set_headers(&mut parts.headers);
        }
        let mut sent = self.send(route, parts, RetryableBody::new(body)).await?;
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
    async fn send(
        &self,
        route: &Route,
        parts: Parts,
        body: RetryableBody,
    ) -> Result<ProxiedResponse, ProxyError> {
        let entry = self.find(route).await?;
        // Acquired before a hold: a held request counts as a request of its sandbox.
        let permit = self.acquire_request_permit(&entry)?;
        let entry = self.admit(entry, is_probe(&parts)).await?;
        let (upstream, response, activity) = self.attempt(route, &entry, &parts, &body).await?;
        Ok(ProxiedResponse {
            response,
            gone: upstream.gone,
            guards: (activity, permit),
        })
    }

    /// Sends a request and retries it if that cannot repeat an effect: the index may still have the
    /// address of a deleted Pod, or not know yet that its server has crashed.
    async fn attempt(
        &self,
        route: &Route,
        entry: &Entry,
        parts: &Parts,
        body: &RetryableBody,
    ) -> Result<UpstreamResponse, ProxyError> {
        let can_retry = |sent: &Result<_, ProxyError>| match sent {
            Err(error) if body.is_untouched() => error.is_retryable(&parts.method),
            _ => false,
        };
        let mut sent = self.send_to(route, entry, parts, body).await;
        if matches!(sent, Err(ProxyError::ConnectionBroken)) && can_retry(&sent) {
            // Only the pooled connection may have closed.
            sent = self.send_to(route, entry, parts, body).await;
        }
        if matches!(sent, Err(ProxyError::Unreachable)) && can_retry(&sent) {
            sent = self
                .retry_until_port_listens(route, entry, parts, body)
                .await;
        }
        match sent {
            Err(error) if can_retry(&sent) => {
                let entry = self.readmit(entry, error, is_probe(parts)).await?;
                self.send_to(route, &entry, parts, body).await
            }
            done => done,
        }
    }

    async fn send_to(
        &self,
        route: &Route,
        entry: &Entry,
        parts: &Parts,
        body: &RetryableBody,
    ) -> Result<UpstreamResponse, ProxyError> {
        let upstream = self.upstream(route, entry)?;
        let activity = upstream.begin_request(parts);
        let response = self
            .upstreams
            .send(&upstream, parts, body.attempt())
            .await?;
        Ok((upstream, response, activity))
    }

    fn acquire_request_permit(&self, entry: &Entry) -> Result<RequestPermit, ProxyError> {
        let limit = self.config.proxy.requests_per_sandbox;
        let permit = self.request_limiter.acquire(&entry.key, limit);
        permit.ok_or(ProxyError::SandboxBusy)
    }

    /// Traffic of a sandbox through this proxy.
    pub(super) fn traffic(&self, key: &Key) -> Traffic {
        self.upstreams.traffic(key)
    }

    /// Watches the index for deleted Pods and closes the connections to them.
    pub(super) async fn follow_pods(&self, shutdown: &CancellationToken) {
        let index = &self.sandboxes.index;
        let follow = self.upstreams.follow(index);
        shutdown.run_until_cancelled(follow).await;
    }

    /// Waits until every tunnel has closed.
    pub(super) async fn tunnels_closed(&self) {
        self.tunnels.closed().await;
    }

    /// Closes every tunnel.
    pub(super) fn abort_tunnels(&self) {
        self.tunnels.abort_all();
    }
}

fn to_response(sent: ProxiedResponse) -> Result<Response<Body>, ProxyError> {
    let (mut parts, body) = sent.response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        // The client did not request an upgrade.
        return Err(ProxyError::Malformed);
    }
    headers::to_client(&mut parts.headers);
    parts.extensions.clear();
    Ok(Response::from_parts(
        parts,
        Body::new(StreamedResponseBody::new(body, sent.gone, sent.guards)),
    ))
}
