//! The listener of the gateway: connections are bounded, slow heads are cut off, and a shutdown
//! lets open requests and tunnels end.

mod client;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use client::{Busy, Client};

/// How long a connection may be idle. Clients keep theirs for 5 seconds by default, ingress
/// controllers for a minute.
const IDLE_LIMIT: Duration = Duration::from_secs(90);
/// Room for a request line of 64 KiB (runtime API spec 1.8) and for headers.
const MAX_HEAD: usize = 128 * 1024;
/// Pause after an error that says something about the process, such as no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
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
            };
            connections.spawn(connection.run(stream, slot, graceful.watcher()));
        }
    }
    drop(listener);
    drain(gateway, graceful, connections, limits.drain).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    connections: &mut JoinSet<()>,
) -> Option<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    while connections.try_join_next().is_some() {}
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((slot, stream, peer)),
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

async fn drain(
    gateway: &Gateway,
    graceful: GracefulShutdown,
    connections: JoinSet<()>,
    limit: Duration,
) {
    let ended = async {
        graceful.shutdown().await;
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
}

impl Connection {
    async fn run(
        self,
        stream: TcpStream,
        slot: OwnedSemaphorePermit,
        watcher: hyper_util::server::graceful::Watcher,
    ) {
        // Without it small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let Self { gateway, peer } = self;
        let busy = Busy::default();
        let client = Client::new(stream, slot, busy.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (gateway, busy) = (gateway.clone(), busy.clone());
            async move {
                busy.begin();
                let response = gateway.respond(request.map(Body::new), peer).await;
                Ok::<_, Infallible>(busy.until_end_of(response))
            }
        });
        let builder = builder();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(client), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(error, "a connection ended badly");
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_LIMIT)
        .max_buf_size(MAX_HEAD);
    builder
}
