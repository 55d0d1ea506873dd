//! Upgraded connections: once both sides have switched protocols, bytes are copied in both
//! directions without inspection, so that any protocol works.

use axum::body::Body;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ProxiedResponse;
use super::headers::{self, tokens};
use super::tunnel_copy::{LargeBuffers, copy_both};
use shared::metrics::GaugeGuard;

#[derive(Debug)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

#[derive(Debug)]
pub(crate) struct Tunnels {
    open: Gauge,
    tracker: TaskTracker,
    aborted: CancellationToken,
    large_buffers: LargeBuffers,
}

/// Ignores an upgrade to HTTP/2, removed by RFC 9113: its requests would bypass the checks.
pub(super) fn take_upgrade(request: &mut Request<Body>) -> Option<Upgrade> {
    let headers = request.headers();
    let requested =
        tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    let protocol = headers.get(UPGRADE).filter(|_| requested)?.clone();
    if names_http2(headers) {
        return None;
    }
    Some(Upgrade {
        protocol,
        client: hyper::upgrade::on(request),
    })
}

/// True if HTTP/2 is in the list of `Upgrade`: the server chooses from all of it.
pub(super) fn names_http2(headers: &HeaderMap) -> bool {
    let mut protocols = tokens(headers, &UPGRADE);
    protocols.any(|protocol| {
        let name = protocol.get(..3);
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"h2c"))
    })
}

impl Upgrade {
    pub(super) fn set_headers(&self, headers: &mut HeaderMap) {
        set_upgrade_headers(headers, self.protocol.clone());
    }
}

fn set_upgrade_headers(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

impl Tunnels {
    /// Creates an empty set; `open` counts the tunnels.
    pub(super) fn new(open: Gauge) -> Self {
        Self {
            open,
            tracker: TaskTracker::new(),
            aborted: CancellationToken::new(),
            large_buffers: LargeBuffers::new(),
        }
    }

    /// Returns the 101 of the sandbox and connects both sides. The tunnel closes with its Pod.
    pub(super) fn open(&self, upgrade: Upgrade, mut sent: ProxiedResponse) -> Response<Body> {
        let sandbox = hyper::upgrade::on(&mut sent.response);
        let (mut parts, _) = sent.response.into_parts();
        let protocol = parts.headers.remove(UPGRADE).unwrap_or(upgrade.protocol);
        headers::to_client(&mut parts.headers);
        set_upgrade_headers(&mut parts.headers, protocol);
        parts.extensions.clear();
        let connected = connect(upgrade.client, sandbox, self.large_buffers.clone());
        let tunnel = sent.gone.run_until_cancelled_owned(connected);
        let tunnel = self.aborted.clone().run_until_cancelled_owned(tunnel);
        let held = (sent.guards, GaugeGuard::new(&self.open));
        self.tracker.spawn(async move {
            tunnel.await;
            drop(held);
        });
        Response::from_parts(parts, Body::empty())
    }

    pub(crate) async fn closed(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    pub(crate) fn abort_all(&self) {
        self.aborted.cancel();
    }
}

async fn connect(client: OnUpgrade, sandbox: OnUpgrade, large_buffers: LargeBuffers) {
    let Ok((client, sandbox)) = tokio::try_join!(client, sandbox) else {
        return;
    };
    let (client, sandbox) = (TokioIo::new(client), TokioIo::new(sandbox));
    // Errors of a tunnel concern only its two sides.
    let _ = copy_both(client, sandbox, &large_buffers).await;
}
