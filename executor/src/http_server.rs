//! An HTTP/1.1 server with limits: connections are counted, headers must arrive in time, and
//! shutdown lets requests finish for a moment. Used by the supervisor and by the action server.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections beyond this number wait in the kernel's queue.
    pub(crate) connections: usize,
    /// Covers both a slow request head and an idle kept-alive connection.
    pub(crate) header_timeout: Duration,
    /// How long requests under way may take once shutdown has begun.
    pub(crate) grace: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub(crate) struct BindError {
    address: SocketAddr,
    source: std::io::Error,
}

pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| BindError { address, source })
}

/// Tells on standard output where the server listens, for whoever started it with port 0.
pub(crate) fn announce(listener: &TcpListener) -> std::io::Result<()> {
    // Whoever has closed the output does not want to know.
    let _ = writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?);
    Ok(())
}

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            (stream, slot) = accept(&listener, &slots) => {
                handle(stream, slot, router.clone(), limits, &graceful);
            }
        }
    }
    drop(listener);
    // Past the grace period the process ends and takes the rest with it.
    let _ = tokio::time::timeout(limits.grace, graceful.shutdown()).await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                // Out of descriptors, or the peer is gone already: neither is cured by haste.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

fn handle(
    stream: TcpStream,
    slot: Option<OwnedSemaphorePermit>,
    router: Router,
    limits: Limits,
    graceful: &GracefulShutdown,
) {
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let connection = graceful.watch(connection);
    // Ends by itself: by the peer, by a timeout or by the end of the process.
    tokio::spawn(async move {
        let _slot = slot;
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection ended");
        }
    });
}
