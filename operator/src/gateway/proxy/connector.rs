//! Makes connections to Pods that end with their Pod. An idle one in the pool would otherwise
//! outlive it, and a request that goes to a successor with the same address would be lost on it.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
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
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, Service};

use crate::metrics::Raised;

/// A Pod that is gone black-holes what is sent to it.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A silent Pod is asked for a sign of life after so long.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to addresses of Pods.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    lives: Lives,
    open: Gauge,
}

/// What ends with the Pod at an address.
#[derive(Debug, Clone, Default)]
pub(super) struct Lives(Arc<Mutex<HashMap<IpAddr, Vec<Life>>>>);

#[derive(Debug)]
struct Life {
    /// Uid of the Sandbox.
    owner: String,
    gone: CancellationToken,
}

/// A connection that breaks when its Pod is gone.
#[derive(Debug)]
pub(super) struct Mortal {
    stream: TokioIo<TcpStream>,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    _open: Raised,
}

impl Lives {
    /// From now on, connections to this address end with `gone`.
    pub(super) fn begin(&self, ip: IpAddr, owner: &str, gone: &CancellationToken) {
        let life = Life {
            owner: owner.to_owned(),
            gone: gone.clone(),
        };
        let mut lives = self.0.lock();
        let at = lives.entry(ip).or_default();
        at.retain(|life| life.owner != owner);
        at.push(life);
    }

    /// Forgets that somebody has the address.
    pub(super) fn end(&self, ip: IpAddr, owner: &str) {
        let mut lives = self.0.lock();
        if let Some(at) = lives.get_mut(&ip) {
            at.retain(|life| life.owner != owner);
            if at.is_empty() {
                lives.remove(&ip);
            }
        }
    }

    /// The end of the Pod at an address. One that nobody has is that of a Pod which is gone; of one
    /// that several have, as on a node's own network, nobody's end is everybody's.
    fn gone(&self, uri: &Uri) -> CancellationToken {
        let host = uri.host().unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let lives = self.0.lock();
        let at = ip.and_then(|ip| lives.get(&ip)).map(Vec::as_slice);
        match at.unwrap_or_default() {
            [life] => life.gone.clone(),
            several => {
                let gone = CancellationToken::new();
                if several.is_empty() {
                    gone.cancel();
                }
                gone
            }
        }
    }
}

impl Connector {
    pub(super) fn new(lives: Lives, open: Gauge) -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_LIMIT));
        http.set_keepalive(Some(KEEPALIVE));
        Self { http, lives, open }
    }
}

impl Service<Uri> for Connector {
    type Response = Mortal;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Mortal, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(BoxError::from)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (gone, open) = (self.lives.gone(&uri), self.open.clone());
        let connecting = self.http.call(uri);
        async move {
            Ok(Mortal {
                stream: connecting.await?,
                gone: Box::pin(gone.cancelled_owned()),
                _open: Raised::new(&open),
            })
        }
        .boxed()
    }
}

impl Read for Mortal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // What has arrived is read first: the end of an answer may come with the end of its Pod.
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            return read;
        }
        ready!(self.gone.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::from(io::ErrorKind::ConnectionAborted)))
    }
}

impl Write for Mortal {
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

impl Connection for Mortal {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_with_whoever_has_its_address() {
        let lives = Lives::default();
        let uri = Uri::from_static("http://[::1]:80/");
        let ip = "::1".parse().unwrap();
        let (first, second) = (CancellationToken::new(), CancellationToken::new());
        assert!(lives.gone(&uri).is_cancelled());
        lives.begin(ip, "a", &first);
        let of_first = lives.gone(&uri);
        lives.begin(ip, "b", &second);
        let of_both = lives.gone(&uri);
        lives.end(ip, "a");
        let of_second = lives.gone(&uri);
        let ended = || [&of_first, &of_both, &of_second].map(CancellationToken::is_cancelled);
        assert_eq!(ended(), [false; 3]);
        first.cancel();
        assert_eq!(ended(), [true, false, false]);
        second.cancel();
        assert_eq!(ended(), [true, false, true]);
        lives.end(ip, "b");
        assert!(lives.0.lock().is_empty());
    }
}
