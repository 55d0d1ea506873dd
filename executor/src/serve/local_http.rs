//! HTTP requests to servers inside the sandbox. Each has a connection of its own: connecting to a
//! loopback address costs little, and no kept connection can be stale.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::own_port;

/// A full listen queue drops connections silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum LocalHttpError {
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, #[source] io::Error),
    #[error("no valid response from {0}")]
    Response(SocketAddr, #[source] hyper::Error),
}

/// Connects to a server.
pub(super) async fn connect(address: SocketAddr) -> Result<TcpStream, LocalHttpError> {
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, own_port::connect(address)).await;
    let connected = connected.unwrap_or_else(|elapsed| Err(elapsed.into()));
    let stream = connected.map_err(|error| LocalHttpError::Connect(address, error))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Sends a request and waits for the head of its response, which may switch protocols.
pub(super) async fn send(
    address: SocketAddr,
    request: Request<Body>,
) -> Result<Response<Incoming>, LocalHttpError> {
    let failed = |error| LocalHttpError::Response(address, error);
    let stream = TokioIo::new(connect(address).await?);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(failed)?;
    // Ends with the response or the tunnel.
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(failed)
}
