//! HTTP/1.1 server of the supervisor and of the action server, with limits of connections and times.

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::idle::IdleConnections;

mod idle;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Concurrent connections. A further one replaces the connection that is idle longest.
    pub(crate) connections: usize,
    /// Limit of a slow request head and of an idle kept-alive connection.
    pub(crate) header_timeout: Duration,
    /// Time for requests in flight after shutdown has begun.
    pub(crate) grace: Duration,
}

pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("cannot listen on {address}"))
}

/// Prints the listening address on standard output, for callers that start the server with port 0.
pub(crate) fn announce(listener: &TcpListener) -> std::io::Result<()> {
    // Ignored if the output is closed.
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
    let idle = Arc::new(IdleConnections::default());
    let connections = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            stream = accept(&listener, &slots, &idle) => {
                let serving = handle(stream, router.clone(), limits, &idle, stop.clone());
                connections.spawn(serving);
            }
        }
    }
    drop(listener);
    // After the grace period the end of the process closes the remaining connections.
    connections.close();
    let _ = tokio::time::timeout(limits.grace, connections.wait()).await;
}

type AcceptedStream = (TcpStream, Option<OwnedSemaphorePermit>);

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
    idle: &IdleConnections,
) -> AcceptedStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, acquire_slot(slots, idle).await),
            Err(error) => {
                // Out of descriptors, or the peer has disconnected: retrying at once does not help.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn acquire_slot(
    slots: &Arc<Semaphore>,
    idle: &IdleConnections,
) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return Some(slot);
        }
        if idle.close_longest_idle() {
            return Arc::clone(slots).acquire_owned().await.ok();
        }
        tokio::select! {
            slot = Arc::clone(slots).acquire_owned() => return slot.ok(),
            // All were busy, and one no longer is.
            () = idle.added() => {}
        }
    }
}

fn handle(
    (stream, slot): AcceptedStream,
    router: Router,
    limits: Limits,
    idle: &Arc<IdleConnections>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let _ = stream.set_nodelay(true);
    let member = idle.join();
    let of_requests = Arc::clone(&member);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let busy = of_requests.busy();
        let response = router.call(request);
        async move {
            let response = response.await?;
            // The body owns the guard: the connection is busy until its end has been sent.
            let body = response.map(|body| {
                Body::new(body.map_err(move |error| {
                    let _busy = &busy;
                    error
                }))
            });
            Ok::<_, std::convert::Infallible>(body)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // Ended by the peer, by a timeout, by the registry or by the end of the process. A connection
    // that has switched protocols ends here and belongs to its handler.
    async move {
        let _slot = slot;
        let mut connection = pin!(connection);
        let until_end = async {
            tokio::select! {
                result = connection.as_mut() => result,
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        tokio::select! {
            // First, so that no request is read from a connection that was chosen to be closed.
            biased;
            () = member.closed() => tracing::debug!("closed an idle connection: too many"),
            result = until_end => if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    async fn connect(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn read_response(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"ok") {
            assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn full_server_closes_the_connection_that_is_idle_longest() {
        let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (in_handler, until) = (Arc::clone(&entered), Arc::clone(&leave));
        let wait = async move || {
            in_handler.notify_one();
            until.notified().await;
            "ok"
        };
        let router = Router::new()
            .route("/", get(async || "ok"))
            .route("/wait", get(wait));
        let listener = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits {
            connections: 3,
            header_timeout: Duration::from_mins(5),
            grace: Duration::ZERO,
        };
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, router, limits, stop.clone()));

        let mut busy = connect(address, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await;
        entered.notified().await;
        let mut silent = connect(address, "GET / HTTP/1.1\r\n").await;
        let mut idle = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(read_response(&mut idle).await.contains("content-length: 2"));
        let mut last = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answered = tokio::time::timeout(Duration::from_secs(30), read_response(&mut last));
        answered.await.expect("the server is full");
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        read_response(&mut idle).await;
        leave.notify_one();
        read_response(&mut busy).await;
        stop.cancel();
        server.await.unwrap();
    }
}
