//! The listener of the gateway, HTTP/1.1 and HTTP/2: connections are bounded, slow heads are cut
//! off, idle connections end, and a shutdown lets open requests and tunnels end.

mod client;
mod exchanges;
mod slot;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use client::Client;
use exchanges::Exchanges;
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
    /// How long open ones may go on after a shutdown was asked for.
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
    let slots = Slots::new(limits.connections, gateway.metrics().connections.clone());
    let mut connections = JoinSet::new();
    while let Some(accepted) = shutdown
        .run_until_cancelled(accept(&listener, &slots, &mut connections))
        .await
    {
        if let Some((slot, stream, peer)) = accepted
            && (!limits.local_only || is_local(&stream))
        {
            let connection = Connection {
                gateway: gateway.clone(),
                peer,
                // Its own, so that connections do not all watch one lock.
                shutdown: shutdown.child_token(),
            };
            connections.spawn(connection.run(stream, slot));
        }
    }
    drop(listener);
    drain(gateway, connections, limits.drain).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Slots,
    connections: &mut JoinSet<()>,
) -> Option<(Slot, TcpStream, SocketAddr)> {
    while connections.try_join_next().is_some() {}
    let free = slots.free().await?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((slots.take(free), stream, peer)),
        Err(error) => {
            if !is_about_peer(&error) {
                tracing::error!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
            None
        }
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
            async move {
                let response = gateway.respond(request.map(Body::new), peer).await;
                Ok::<_, Infallible>(exchange.until_end_of(response))
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
