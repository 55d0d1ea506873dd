//! The way from a client to the server in a sandbox (runtime API spec 4). Everything is streamed:
//! no body is collected, no answer has a deadline, and any upgrade becomes a tunnel.
//!
//! The address comes from the index alone, never from the request: a client can name a sandbox,
//! but no host.

mod admit;
mod body;
mod config;
mod connector;
mod error;
mod headers;
mod links;
mod loopback;
mod passage;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod properties;
mod questions;
mod route;
mod share;
mod upgrade;
mod upstream;
mod wake;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse as _;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::GatewayConfig;
use super::sandboxes::Sandboxes;
use crate::index::{Entry, Key};
use crate::metrics::GatewayMetrics;
use crate::traffic::Traffic;
use body::{Streamed, Unsent};
use passage::Passage;
use questions::Questions;
use share::{Share, Shares};
use upstream::{Upstream, Upstreams};

pub use config::ProxyConfig;
pub use error::ProxyError;
pub use route::{Prefix, Route, Target};

/// What a sandbox answers, and what the request to it counts as meanwhile.
type Attempt = (Upstream, Response<Incoming>, Passage);

/// A request that a sandbox has begun to answer.
struct Sent {
    response: Response<Incoming>,
    /// Cancelled when the Pod is gone.
    gone: CancellationToken,
    /// Held for as long as anything of it is under way.
    passage: (Passage, Share),
}

/// The reverse proxy.
#[derive(Debug)]
pub struct Proxy {
    sandboxes: Sandboxes,
    config: Arc<GatewayConfig>,
    metrics: Arc<GatewayMetrics>,
    /// Host of all sandboxes' names, without port.
    base_host: String,
    upstreams: Upstreams,
    addresses: loopback::Addresses,
    tunnels: upgrade::Tunnels,
    wakes: Arc<wake::Wakes>,
    questions: Questions,
    shares: Shares,
    /// Places of requests that wait for their sandbox.
    places: Semaphore,
}

impl Proxy {
    pub(super) fn new(
        sandboxes: Sandboxes,
        config: Arc<GatewayConfig>,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        Self {
            base_host: route::base_host(&config.urls.base),
            upstreams: Upstreams::new(metrics.upstream_connections.clone()),
            addresses: loopback::Addresses::new(sandboxes.index.clone()),
            tunnels: upgrade::Tunnels::new(metrics.tunnels.clone()),
            wakes: Arc::new(wake::Wakes::new(metrics.clone())),
            questions: Questions::default(),
            shares: Shares::default(),
            places: Semaphore::new(config.proxy.held_requests),
            sandboxes,
            config,
            metrics,
        }
    }

    /// Sends a request to its sandbox, and returns the answer while it is still coming in.
    pub(super) async fn forward(
        &self,
        route: Route,
        request: Request<Body>,
        peer: SocketAddr,
    ) -> Response<Body> {
        let answer = self.exchange(&route, request, peer).await;
        answer.unwrap_or_else(|error| {
            tracing::debug!(id = route.id, category = error.category(), "{error}");
            error.into_response()
        })
    }

    async fn exchange(
        &self,
        route: &Route,
        mut request: Request<Body>,
        peer: SocketAddr,
    ) -> Result<Response<Body>, ProxyError> {
        headers::check_framing(&request)?;
        let upgrade = upgrade::take(&mut request);
        let (mut parts, body) = request.into_parts();
        headers::to_upstream(&mut parts, route, peer, &self.config.urls)?;
        let base = route.prefix.as_ref();
        let base = base.map(|prefix| links::Base::new(prefix, &parts.headers));
        if let Some(upgrade) = &upgrade {
            upgrade.announce(&mut parts.headers);
        }
        let mut sent = self.send(route, parts, Unsent::new(body)).await?;
        let headers = sent.response.headers_mut();
        match base {
            Some(base) => base.apply(headers),
            None => links::keep_on_host(headers),
        }
        let switches = sent.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        match upgrade {
            // Not what was asked for, whatever the client thinks of it.
            Some(_) if switches && upgrade::names_http2(sent.response.headers()) => {
                Err(ProxyError::Malformed)
            }
            Some(upgrade) if switches => Ok(self.tunnels.open(upgrade, sent)),
            _ => answer(sent),
        }
    }

    /// Sends a request as soon as its sandbox is ready for it.
    async fn send(&self, route: &Route, parts: Parts, body: Unsent) -> Result<Sent, ProxyError> {
        let entry = self.find(route).await?;
        // Before it waits: what waits for a sandbox is a request to it.
        let share = self.share(&entry)?;
        let entry = self.admit(entry).await?;
        let (upstream, response, passage) = self.attempt(route, &entry, &parts, &body).await?;
        Ok(Sent {
            response,
            gone: upstream.gone,
            passage: (passage, share),
        })
    }

    /// Sends a request, and again if that cannot do anything twice: the index may still have the
    /// address of a Pod that is gone, or not know yet that its server has crashed.
    async fn attempt(
        &self,
        route: &Route,
        entry: &Entry,
        parts: &Parts,
        body: &Unsent,
    ) -> Result<Attempt, ProxyError> {
        let again = |sent: &Result<_, ProxyError>| match sent {
            Err(error) if body.is_untouched() => error.allows_another(&parts.method),
            _ => false,
        };
        let mut sent = self.send_to(route, entry, parts, body).await;
        if matches!(sent, Err(ProxyError::Broken)) && again(&sent) {
            // Only that connection may have ended.
            sent = self.send_to(route, entry, parts, body).await;
        }
        match sent {
            Err(error) if again(&sent) => {
                let entry = self.admit_again(entry, error).await?;
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
        body: &Unsent,
    ) -> Result<Attempt, ProxyError> {
        let upstream = self.upstream(route, entry)?;
        let passage = upstream.pass(parts);
        let response = self.upstreams.send(&upstream, parts, body.share()).await?;
        Ok((upstream, response, passage))
    }

    fn share(&self, entry: &Entry) -> Result<Share, ProxyError> {
        let limit = self.config.proxy.requests_per_sandbox;
        let share = self.shares.take(&entry.key, limit);
        share.ok_or(ProxyError::Busy)
    }

    /// What is known of the requests to a sandbox.
    pub(super) fn traffic(&self, key: &Key) -> Traffic {
        self.upstreams.traffic(key)
    }

    /// Watches the index for Pods that go away, and aborts what is open to them.
    pub(super) async fn follow_pods(&self, shutdown: &CancellationToken) {
        let index = &self.sandboxes.index;
        let follow = self.upstreams.follow(index);
        shutdown.run_until_cancelled(follow).await;
    }

    /// Ends when every tunnel has ended.
    pub(super) async fn tunnels_closed(&self) {
        self.tunnels.closed().await;
    }

    /// Ends every tunnel now.
    pub(super) fn cut_tunnels(&self) {
        self.tunnels.cut();
    }
}

fn answer(sent: Sent) -> Result<Response<Body>, ProxyError> {
    let (mut parts, body) = sent.response.into_parts();
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody asked for it, so nobody could use it.
        return Err(ProxyError::Malformed);
    }
    headers::to_client(&mut parts.headers);
    parts.extensions.clear();
    Ok(Response::from_parts(
        parts,
        Body::new(Streamed::new(body, sent.gone, sent.passage)),
    ))
}
