//! Upgraded connections: once both sides have switched protocols, bytes are copied both ways and
//! nobody here looks at them. So any protocol, extension and subprotocol works.

use axum::body::Body;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::copy_bidirectional_with_sizes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Sent, headers};
use crate::metrics::Raised;

/// Buffer of one direction of a tunnel. Most tunnels are idle.
const BUFFER: usize = 8 * 1024;

/// A client's wish to switch protocols.
#[derive(Debug)]
pub(super) struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
}

/// All open tunnels.
#[derive(Debug)]
pub(super) struct Tunnels {
    open: Gauge,
    tracker: TaskTracker,
    cut: CancellationToken,
}

/// Takes the wish out of a request, if it has one. To speak HTTP/2 with a sandbox is none: what came
/// through that tunnel would be requests that nobody has looked at (RFC 9113 dropped it anyway).
pub(super) fn take(request: &mut Request<Body>) -> Option<Upgrade> {
    let headers = request.headers();
    let asked = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    let protocol = headers.get(UPGRADE).filter(|_| asked)?.clone();
    if names_http2(headers) {
        return None;
    }
    Some(Upgrade {
        protocol,
        client: hyper::upgrade::on(request),
    })
}

/// Whether HTTP/2 is among the protocols of `Upgrade`, wherever in the list: the server chooses.
pub(super) fn names_http2(headers: &HeaderMap) -> bool {
    let mut protocols = tokens(headers, &UPGRADE);
    protocols.any(|protocol| {
        let name = protocol.get(..3);
        name.is_some_and(|name| name.eq_ignore_ascii_case(b"h2c"))
    })
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    let tokens = lines.flat_map(|line| line.as_bytes().split(|b| *b == b','));
    tokens.map(<[u8]>::trim_ascii)
}

impl Upgrade {
    /// Repeats the wish on the connection to the sandbox.
    pub(super) fn announce(&self, headers: &mut HeaderMap) {
        announce(headers, self.protocol.clone());
    }
}

fn announce(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

impl Tunnels {
    /// `open` counts them.
    pub(super) fn new(open: Gauge) -> Self {
        Self {
            open,
            tracker: TaskTracker::new(),
            cut: CancellationToken::new(),
        }
    }

    /// Passes on the sandbox's consent, and connects both sides as soon as they have switched.
    /// The tunnel breaks when the Pod is gone.
    pub(super) fn open(&self, upgrade: Upgrade, mut sent: Sent) -> Response<Body> {
        let sandbox = hyper::upgrade::on(&mut sent.response);
        let (mut parts, _) = sent.response.into_parts();
        let protocol = parts.headers.remove(UPGRADE).unwrap_or(upgrade.protocol);
        headers::to_client(&mut parts.headers);
        announce(&mut parts.headers, protocol);
        parts.extensions.clear();
        let connected = connect(upgrade.client, sandbox);
        let tunnel = sent.gone.run_until_cancelled_owned(connected);
        let tunnel = self.cut.clone().run_until_cancelled_owned(tunnel);
        let held = (sent.passage, Raised::new(&self.open));
        self.tracker.spawn(async move {
            tunnel.await;
            drop(held);
        });
        Response::from_parts(parts, Body::empty())
    }

    /// Ends when every tunnel has ended.
    pub(super) async fn closed(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Ends every tunnel now.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }
}

async fn connect(client: OnUpgrade, sandbox: OnUpgrade) {
    let Ok((client, sandbox)) = tokio::try_join!(client, sandbox) else {
        return;
    };
    let (mut client, mut sandbox) = (io(client), io(sandbox));
    // An end of one side is passed on as an end of that direction only. How a tunnel ends is no
    // matter of ours.
    let _ = copy_bidirectional_with_sizes(&mut client, &mut sandbox, BUFFER, BUFFER).await;
}

fn io(upgraded: Upgraded) -> TokioIo<Upgraded> {
    TokioIo::new(upgraded)
}
