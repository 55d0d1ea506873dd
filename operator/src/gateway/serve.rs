//! The listener of the gateway, HTTP/1.1 and HTTP/2: connections are bounded, slow heads are cut
//! off, idle connections end, and a shutdown lets new clients find another replica, and open requests
//! and tunnels end.

mod client;
mod exchanges;
mod linger;
mod origins;
mod slot;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus_client::metrics::counter::Counter;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use client::Client;
use exchanges::Exchanges;
use origins::Origins;

pub(super) use origins::origin;
use slot::{Slot, Slots};

/// Room for a request line of 64 KiB (runtime API spec 1.8) and for headers.
const MAX_HEAD: usize = 128 * 1024;
/// Pause after an error that says something about the process, such as no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Requests at the same time on one HTTP/2 connection.
const STREAMS: u32 = 256;
/// What a client may send ahead on one stream, and on all of a connection: the memory that a sandbox
/// which does not read can take.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// An HTTP/2 client is asked for a sign of life so often, and has to give it within the limit.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_LIMIT: Duration = Duration::from_secs(20);

/// Bounds of the listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Connections at the same time from one address, or from one IPv6 network of 64 bits. More are
    /// closed at once.
    pub per_address: Option<NonZeroUsize>,
    /// How long new connections are still accepted after a shutdown was asked for: whoever sends
    /// them has to hear of it first.
    pub delay: Duration,
    /// How long open ones may go on after that.
    pub drain: Duration,
    /// Whether connections to other addresses than loopback are closed at once. Loopback URLs need
    /// all of 127.0.0.0/8, which takes a listener on every address.
    pub local_only: bool,
}

/// Serves until `shutdown`, and then until everything open has ended or the drain is over.
pub async fn serve(
    gateway: &Gateway,
    listener: TcpListener,
    limits: Limits,
    shutdown: &CancellationToken,
) {
    let mut door = Door::new(gateway, listener, limits);
    let closed = CancellationToken::new();
    let mut closing = pin!(until_closing(shutdown, limits.delay));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            accepted = door.accept() => accepted,
        };
        if let Some((stream, slot, peer)) = accepted {
            let connection = Connection {
                gateway: gateway.clone(),
                peer,
                // Its own, so that connections do not all watch one lock.
                shutdown: closed.child_token(),
            };
            door.connections.spawn(connection.run(stream, slot));
        }
    }
    closed.cancel();
    drain(gateway, door.close(), limits.drain).await;
}

async fn until_closing(shutdown: &CancellationToken, delay: Duration) {
    shutdown.cancelled().await;
    sleep(delay).await;
}

/// Where connections come in.
struct Door {
    listener: TcpListener,
    local_only: bool,
    slots: Slots,
    origins: Origins,
    refused: Counter,
    connections: JoinSet<()>,
}

impl Door {
    fn new(gateway: &Gateway, listener: TcpListener, limits: Limits) -> Self {
        let metrics = gateway.metrics();
        Self {
            listener,
            local_only: limits.local_only,
            slots: Slots::new(limits.connections, metrics.connections.clone()),
            origins: Origins::new(limits.per_address),
            refused: metrics.refused_connections.clone(),
            connections: JoinSet::new(),
        }
    }

    /// The next connection, or `None` if it is none of ours or could not be accepted.
    async fn accept(&mut self) -> Option<(TcpStream, Slot, SocketAddr)> {
        while self.connections.try_join_next().is_some() {}
        let free = self.slots.free().await?;
        let (stream, peer) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                rest_after(&error).await;
                return None;
            }
        };
        if self.local_only && !is_local(&stream) {
            return None;
        }
        let Some(share) = self.origins.admit(peer.ip()) else {
            self.refused.inc();
            return None;
        };
        Some((stream, self.slots.take(free, share), peer))
    }

    /// Lets nobody in any more; what is open goes on.
    fn close(self) -> JoinSet<()> {
        self.connections
    }
}

async fn rest_after(error: &io::Error) {
    if !is_about_peer(error) {
        tracing::error!(%error, "no connection can be accepted");
        sleep(ACCEPT_PAUSE).await;
    }
}

fn is_local(stream: &TcpStream) -> bool {
    stream
        .local_addr()
        .is_ok_and(|a| a.ip().to_canonical().is_loopback())
}

fn is_about_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

async fn drain(gateway: &Gateway, connections: JoinSet<()>, limit: Duration) {
    let ended = async {
        connections.join_all().await;
        gateway.tunnels_closed().await;
    };
    if timeout(limit, ended).await.is_err() {
        tracing::warn!("the drain is over; what is still open is cut off");
        gateway.cut_tunnels();
        gateway.tunnels_closed().await;
    }
}

struct Connection {
    gateway: Gateway,
    peer: SocketAddr,
    shutdown: CancellationToken,
}

impl Connection {
    /// Serves one connection until it ends: by itself, idle, or because of a shutdown as soon as
    /// nothing is under way.
    async fn run(self, stream: TcpStream, slot: Slot) {
        let Self {
            gateway,
            peer,
            shutdown,
        } = self;
        let exchanges = Exchanges::default();
        let client = Client::new(stream, slot, exchanges.clone());
        let served = exchanges.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (gateway, exchange) = (gateway.clone(), served.begin());
            let version = request.version();
            let request = request.map(|body| served.watch(body));
            async move {
                let response = gateway.respond(request, peer).await;
                Ok::<_, Infallible>(exchange.until_end_of(version, response))
            }
        });
        let builder = builder();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(client), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = until_unwanted(&shutdown, &exchanges) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection ended badly");
        }
    }
}

async fn until_unwanted(shutdown: &CancellationToken, exchanges: &Exchanges) {
    shutdown.run_until_cancelled(exchanges.idle()).await;
}

/// Extended CONNECT is not announced, so upgrades come by HTTP/1.1.
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT);
    builder
}
