//! The network of the Pods: TCP, or streams in memory for tests in virtual time.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceExt as _};

/// Packets to a deleted Pod are dropped silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Connects to host and port of a URI.
pub type PodNetwork = BoxCloneSyncService<Uri, TokioIo<Box<dyn PodStream>>, BoxError>;

/// A connection to a Pod.
pub trait PodStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> PodStream for S {}

impl Connection for Box<dyn PodStream> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// The network of the kernel.
pub(super) fn tcp() -> PodNetwork {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE_INTERVAL));
    let boxed = |tcp: TokioIo<_>| TokioIo::new(Box::new(tcp.into_inner()) as Box<dyn PodStream>);
    BoxCloneSyncService::new(tcp.map_response(boxed).map_err(BoxError::from))
}
