//! Connects to Pods. A connection belongs to one Pod of one sandbox and closes with it: an idle one
//! in the pool would otherwise survive it and carry requests of a successor at the same address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Future as _, FutureExt as _};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, Service};

use super::address_proof::{AddressProver, ProvablePod};
use super::config::ProxyConfig;
use shared::metrics::GaugeGuard;

/// Packets to a deleted Pod are dropped silently.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of TCP keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Connects to addresses of Pods.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    lifetimes: PodLifetimes,
    prover: AddressProver,
    slots: Arc<Semaphore>,
    open: Gauge,
}

/// All connections to sandboxes are in use.
#[derive(Debug, thiserror::Error)]
#[error("too many connections to sandboxes")]
pub(super) struct UpstreamLimitError;

/// Pods that connections can be made to, by number. Two sandboxes may seem to have one address
/// while the index is behind, so connections are pooled by number and not by address.
#[derive(Debug, Clone, Default)]
pub(super) struct PodLifetimes(Arc<Mutex<NumberedPods>>);

#[derive(Debug, Default)]
struct NumberedPods {
    pods: HashMap<u64, PodLifetime>,
    next: u64,
}

#[derive(Debug, Clone)]
pub(super) struct PodLifetime {
    pub(super) ip: IpAddr,
    /// Cancelled when the Pod is gone.
    pub(super) gone: CancellationToken,
    /// `None` if the Pod cannot prove its address: no supervisor, or an earlier version.
    pub(super) provable: Option<Arc<ProvablePod>>,
}

/// Failure before a connection.
#[derive(Debug, thiserror::Error)]
#[error("the Pod is gone")]
struct PodGoneError;

/// A connection that fails when its Pod is deleted.
#[derive(Debug)]
pub(super) struct PodStream {
    stream: TokioIo<TcpStream>,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: OwnedSemaphorePermit,
    _open: GaugeGuard,
}

impl PodLifetimes {
    /// Adds a Pod and returns its number.
    pub(super) fn begin(&self, pod: PodLifetime) -> u64 {
        let mut pods = self.0.lock();
        let number = pods.next;
        pods.next += 1;
        pods.pods.insert(number, pod);
        number
    }

    /// Removes a Pod.
    pub(super) fn end(&self, number: u64) {
        self.0.lock().pods.remove(&number);
    }

    /// Host and port that stand for a port of a Pod in URIs of the client.
    pub(super) fn host(number: u64, port: u16) -> String {
        format!("pod-{number}:{port}")
    }

    fn find(&self, uri: &Uri) -> Option<PodLifetime> {
        let number = uri.host()?.strip_prefix("pod-")?.parse().ok()?;
        self.0.lock().pods.get(&number).cloned()
    }
}

impl Connector {
    /// Creates a connector; `open` counts its connections.
    pub(super) fn new(lifetimes: PodLifetimes, config: &ProxyConfig, open: Gauge) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_keepalive(Some(KEEPALIVE_INTERVAL));
        Self {
            http,
            lifetimes,
            prover: AddressProver::new(config.control_port),
            slots: Arc::new(Semaphore::new(config.upstream_connections)),
            open,
        }
    }
}

impl Service<Uri> for Connector {
    type Response = PodStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<PodStream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let pod = self.lifetimes.find(&uri);
        let target = pod.as_ref().map(|pod| {
            let port = uri.port_u16().unwrap_or_default();
            let address = SocketAddr::new(pod.ip, port);
            Uri::try_from(format!("http://{address}/"))
        });
        let (Some(pod), Some(Ok(target))) = (pod, target) else {
            return async { Err(PodGoneError.into()) }.boxed();
        };
        let (open, prover) = (self.open.clone(), self.prover.clone());
        let slot = self.slots.clone().try_acquire_owned();
        let connecting = self.http.call(target);
        async move {
            let slot = slot.map_err(|_| UpstreamLimitError)?;
            let stream = connecting.await?;
            if let Some(provable) = &pod.provable {
                let proof = prover.prove(provable, pod.ip, Instant::now());
                proof.await.inspect_err(|error| {
                    tracing::warn!(ip = %pod.ip, %error, "the address of a Pod is not proven");
                })?;
            }
            Ok(PodStream {
                stream,
                _slot: slot,
                gone: Box::pin(pod.gone.cancelled_owned()),
                _open: GaugeGuard::new(&open),
            })
        }
        .boxed()
    }
}

impl Read for PodStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Received data is read first: the end of a response may come with the end of its Pod.
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            return read;
        }
        ready!(self.gone.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)))
    }
}

impl Write for PodStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

impl Connection for PodStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_found_by_number_and_not_by_address() {
        let lifetimes = PodLifetimes::default();
        let begin = || {
            lifetimes.begin(PodLifetime {
                ip: "::1".parse().unwrap(),
                gone: CancellationToken::new(),
                provable: None,
            })
        };
        let uri = |number| Uri::try_from(format!("http://{}/", PodLifetimes::host(number, 80)));
        let find = |number| lifetimes.find(&uri(number).unwrap());
        let (first, second) = (begin(), begin());
        find(first).unwrap().gone.cancel();
        assert!(!find(second).unwrap().gone.is_cancelled());
        lifetimes.end(first);
        assert!(find(first).is_none() && find(second).is_some());
        assert!(
            lifetimes
                .find(&Uri::from_static("http://[::1]:80/"))
                .is_none()
        );
    }
}
