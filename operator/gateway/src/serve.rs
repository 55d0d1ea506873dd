//! The listener of the gateway, HTTP/1.1 and HTTP/2. It bounds the number of connections, closes
//! slow and idle ones, and drains the rest on shutdown.

mod client_stream;
mod in_flight;
mod proxy_protocol;
mod stream_executor;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod transport;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::client_address::{ClientConnection, client_network, is_trusted};
use super::client_memory::{
    CONNECTION_BYTES, MemoryPermit, REQUEST_BYTES, TLS_BYTES, body_bytes, request_bytes,
};
use super::events::ResponseAbort;
use super::keyed_limit::KeyedLimiter;
use super::{Gateway, GatewayConfig};
use client_stream::{ClientObserver, ConnectionSlot};
use in_flight::{InFlightRequests, TrackedResponse};
use shared::metrics::GaugeGuard;
use stream_executor::StreamExecutor;
use transport::Transport;

/// Request line of 64 KiB (`docs/specs/runtime-api.md`, section 1.8) and headers.
const MAX_HEAD_BYTES: usize = 128 * 1024;
/// Pause after an error of the process, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum of concurrent requests on one HTTP/2 connection.
const MAX_CONCURRENT_STREAMS: u32 = 100;
/// Receive window of one stream in bytes: the memory of an upload that the sandbox does not read.
const STREAM_WINDOW: u32 = 256 * 1024;
/// Receive window of a connection: that of all its streams, so that stalled uploads do not block others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_CONCURRENT_STREAMS;
/// Send buffer of one stream in bytes.
const SEND_BUFFER: usize = 64 * 1024;
/// Minimum idle time of a connection that is closed to make room: a new client sends its request soon.
const MIN_EVICTION_IDLE: Duration = Duration::from_millis(500);
/// Interval of attempts to make room, and the fraction of connections that one attempt closes.
const EVICTION_INTERVAL: Duration = Duration::from_millis(100);
const EVICTION_FRACTION: usize = 64;
/// Interval and timeout of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves until `shutdown`, then until every connection has closed or the drain timeout is over.
pub(super) async fn serve(gateway: &Gateway, listener: TcpListener, shutdown: &CancellationToken) {
    let config = &gateway.0.config;
    let mut acceptor = Acceptor {
        gateway,
        listener,
        free: Arc::new(Semaphore::new(config.max_connections)),
        addresses: KeyedLimiter::default(),
        connections: JoinSet::new(),
        open: HashMap::new(),
    };
    let closed = CancellationToken::new();
    let mut closing = pin!(until_accept_ends(shutdown, config.drain_delay));
    loop {
        tokio::select! {
            biased;
            () = &mut closing => break,
            () = acceptor.accept(&closed) => {}
        }
    }
    closed.cancel();
    gateway.0.events.stop();
    gateway.0.logs.stop();
    drain(gateway, acceptor.close(), config.drain_limit).await;
}

/// Load balancers notice the shutdown meanwhile.
async fn until_accept_ends(shutdown: &CancellationToken, delay: Duration) {
    shutdown.cancelled().await;
    sleep(delay).await;
}

struct Acceptor<'a> {
    gateway: &'a Gateway,
    listener: TcpListener,
    free: Arc<Semaphore>,
    /// Connections by client network.
    addresses: KeyedLimiter<IpAddr>,
    connections: JoinSet<()>,
    open: HashMap<task::Id, Connection>,
}

impl Acceptor<'_> {
    /// Accepts the next connection, if it is not rejected, and serves it until `closed`.
    async fn accept(&mut self, closed: &CancellationToken) {
        let (stream, peer) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => return pause_after_accept_error(&error).await,
        };
        let (config, metrics) = (&self.gateway.0.config, &self.gateway.0.metrics);
        let local = stream.local_addr().ok().map(|local| local.ip());
        if config.local_only && !local.is_some_and(|local| local.to_canonical().is_loopback()) {
            return;
        }
        let limit = connection_limit(config, peer.ip());
        let network = client_network(peer.ip());
        let Some(address_permit) = self.addresses.acquire(&network, limit) else {
            metrics.refused_connections.inc();
            return;
        };
        let (permit, memory) = self.free_slot().await;
        let slot = ConnectionSlot {
            memory,
            transport_bytes: transport_bytes(config),
            overloads: metrics.overloads.clone(),
            address: address_permit,
            _guards: (permit, GaugeGuard::new(&metrics.connections)),
        };
        let connection = Connection {
            gateway: self.gateway.clone(),
            addresses: ClientConnection { peer, local },
            in_flight: InFlightRequests::default(),
            // A token per connection, so that connections do not contend for one lock.
            close: closed.child_token(),
        };
        let served = connection.clone().run(stream, slot);
        let id = self.connections.spawn(served).id();
        self.open.insert(id, connection);
    }

    /// Waits for a slot and the memory of a connection. Idle connections are closed to make room.
    async fn free_slot(&mut self) -> (OwnedSemaphorePermit, MemoryPermit) {
        let bytes = CONNECTION_BYTES + transport_bytes(&self.gateway.0.config);
        loop {
            while let Some(ended) = self.connections.try_join_next_with_id() {
                self.forget(ended);
            }
            if let Ok(permit) = self.free.clone().try_acquire_owned()
                && let Some(memory) = self.gateway.0.memory.acquire(bytes)
            {
                return (permit, memory);
            }
            self.evict_idle();
            tokio::select! {
                Some(ended) = self.connections.join_next_with_id() => self.forget(ended),
                () = sleep(EVICTION_INTERVAL) => {}
            }
        }
    }

    /// Closes the listener; open connections continue.
    fn close(self) -> JoinSet<()> {
        self.connections
    }

    fn forget(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
    }

    /// Closes a part of all connections, idle for longest: the search then costs little for each.
    fn evict_idle(&self) {
        let idle = self.open.values().filter(|open| !open.close.is_cancelled());
        let idle = idle.filter_map(|open| Some((open.in_flight.idle_time()?, &open.close)));
        let mut idle: Vec<_> = idle
            .filter(|(time, _)| *time >= MIN_EVICTION_IDLE)
            .collect();
        idle.sort_unstable_by_key(|(time, _)| Reverse(*time));
        let most = self.open.len().div_ceil(EVICTION_FRACTION);
        for (_, close) in idle.iter().take(most) {
            close.cancel();
            self.gateway.0.metrics.evicted_connections.inc();
        }
    }
}

/// Memory that a connection needs below HTTP.
fn transport_bytes(config: &GatewayConfig) -> usize {
    config.certificate.as_ref().map_or(0, |_| TLS_BYTES)
}

/// Maximum of concurrent connections from this address. Trusted proxies are exempt.
fn connection_limit(config: &GatewayConfig, address: IpAddr) -> usize {
    match config.max_connections_per_address {
        0 => usize::MAX,
        _ if is_trusted(address.to_canonical(), &config.trusted_proxies) => usize::MAX,
        limit => limit,
    }
}

async fn pause_after_accept_error(error: &io::Error) {
    if !is_peer_error(error) {
        tracing::error!(%error, "cannot accept a connection");
        sleep(ACCEPT_PAUSE).await;
    }
}

fn is_peer_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

async fn drain(gateway: &Gateway, connections: JoinSet<()>, limit: Duration) {
    let tunnels = &gateway.0.proxy.tunnels;
    let ended = async {
        connections.join_all().await;
        tunnels.closed().await;
    };
    if timeout(limit, ended).await.is_err() {
        tracing::warn!("drain timeout reached; closing open connections");
        tunnels.abort_all();
        tunnels.closed().await;
    }
}

#[derive(Clone)]
struct Connection {
    gateway: Gateway,
    addresses: ClientConnection,
    in_flight: InFlightRequests,
    close: CancellationToken,
}

impl Connection {
    async fn run(mut self, stream: TcpStream, mut slot: ConnectionSlot) {
        let close = self.close.clone();
        let open = self.open(stream, &mut slot);
        if let Some(stream) = close.run_until_cancelled(open).await.flatten() {
            self.serve(stream, slot).await;
        }
    }

    /// Serves until it ends, is idle, is aborted, or has no request left after `close`.
    async fn serve<S>(self, stream: S, slot: ConnectionSlot)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (in_flight, close) = (self.in_flight.clone(), self.close.clone());
        let client = ClientObserver::observe(stream, slot, in_flight.clone());
        let service = service_fn(move |request: Request<Incoming>| self.respond(request));
        let builder = builder();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(client), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = in_flight.aborted().cancelled() => return,
            () = idle_or_closed(&close, &in_flight) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = in_flight.aborted().cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "connection closed with an error");
        }
    }

    /// Opens what lies below HTTP. The peer may then be another one, with a limit of its own.
    async fn open(&mut self, stream: TcpStream, slot: &mut ConnectionSlot) -> Option<Transport> {
        let (gateway, peer) = (&self.gateway.0, &mut self.addresses.peer);
        let admit = |client: IpAddr| {
            let limit = connection_limit(&gateway.config, client);
            slot.address.change_key(&client_network(client), limit)
        };
        let opened = transport::open(&gateway.config, stream, peer, admit).await;
        opened
            .inspect_err(|error| {
                if error.kind() == io::ErrorKind::QuotaExceeded {
                    gateway.metrics.refused_connections.inc();
                }
                tracing::debug!(%peer, %error, "connection closed before HTTP");
            })
            .ok()
    }

    /// Answers a request, if the memory of clients is not used up.
    fn respond(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<TrackedResponse>, Infallible>> + use<> {
        let (gateway, addresses) = (self.gateway.clone(), self.addresses);
        let (version, in_flight) = (request.version(), self.in_flight.begin());
        let bytes = request_bytes(&request, STREAM_WINDOW as usize);
        let kept = REQUEST_BYTES + body_bytes(&request, STREAM_WINDOW as usize);
        let memory = gateway.0.memory.acquire(bytes);
        let request = request.map(|body| self.in_flight.watch(body));
        async move {
            let mut response = if memory.is_some() {
                gateway.respond(request, addresses).await
            } else {
                gateway.reject_overloaded()
            };
            let abort = response.extensions_mut().remove::<ResponseAbort>();
            match abort {
                Some(abort) if version < Version::HTTP_2 => in_flight.link(&abort),
                Some(abort) => stream_executor::link(&abort),
                None => {}
            }
            let memory = memory.map(|mut memory| {
                memory.shrink_to(kept);
                memory
            });
            Ok(in_flight.until_response_end(version, response, memory))
        }
    }
}

async fn idle_or_closed(close: &CancellationToken, in_flight: &InFlightRequests) {
    close.run_until_cancelled(in_flight.idle()).await;
}

/// Builder of connections. Extended CONNECT is not announced, so upgrades use HTTP/1.1.
fn builder() -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
