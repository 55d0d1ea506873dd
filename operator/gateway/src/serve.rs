//! The listener of the gateway, HTTP/1.1 and HTTP/2. It bounds the number of connections, closes
//! slow and idle ones, and drains the rest on shutdown.

mod address_limit;
mod client_stream;
mod connection_slots;
mod in_flight;
mod linger;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::client_address::ClientConnection;
use super::client_memory::{REQUEST_BYTES, request_bytes};
use address_limit::AddressLimiter;
use client_stream::ClientStream;
use connection_slots::{ConnectionSlot, ConnectionSlots, FreeSlot};
use in_flight::{InFlightRequests, TrackedResponse};
use shared::metrics::GatewayMetrics;

pub(super) use address_limit::client_network;

/// Largest request head: a request line of 64 KiB (`docs/specs/runtime-api.md`, section 1.8) and
/// headers.
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

/// Limits of the listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum of concurrent connections.
    pub connections: usize,
    /// Maximum of concurrent connections from one address or IPv6 /64 network. More are closed at
    /// once.
    pub per_address: Option<NonZeroUsize>,
    /// Time in which new connections are accepted after the shutdown signal, until load balancers
    /// know.
    pub drain_delay: Duration,
    /// Time in which open connections may finish after that.
    pub drain_timeout: Duration,
    /// True if connections to other addresses than loopback are closed at once. Loopback URLs use
    /// all of 127.0.0.0/8, which takes a listener on every address.
    pub local_only: bool,
}

/// Serves until `shutdown`, then until every connection has closed or the drain timeout is over.
pub async fn serve(
    gateway: &Gateway,
    listener: TcpListener,
    limits: Limits,
    shutdown: &CancellationToken,
) {
    let mut acceptor = Acceptor::new(gateway, listener, limits);
    let closed = CancellationToken::new();
    let mut closing = pin!(until_accept_ends(shutdown, limits.drain_delay));
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut closing => break,
            accepted = acceptor.accept() => accepted,
        };
        if let Some(accepted) = accepted {
            // A token per connection, so that connections do not contend for one lock.
            acceptor.spawn(gateway, accepted, closed.child_token());
        }
    }
    closed.cancel();
    drain(gateway, acceptor.close(), limits.drain_timeout).await;
}

async fn until_accept_ends(shutdown: &CancellationToken, delay: Duration) {
    shutdown.cancelled().await;
    sleep(delay).await;
}

/// Accepts connections within the limits.
struct Acceptor {
    listener: TcpListener,
    local_only: bool,
    slots: ConnectionSlots,
    addresses: AddressLimiter,
    metrics: Arc<GatewayMetrics>,
    connections: JoinSet<()>,
    open: HashMap<task::Id, OpenConnection>,
}

/// Handle of a connection that is being served.
struct OpenConnection {
    in_flight: InFlightRequests,
    close: CancellationToken,
}

/// A connection that has a slot.
struct AcceptedConnection {
    stream: TcpStream,
    slot: ConnectionSlot,
    addresses: ClientConnection,
}

impl Acceptor {
    fn new(gateway: &Gateway, listener: TcpListener, limits: Limits) -> Self {
        let metrics = gateway.metrics().clone();
        let trusted = gateway.trusted_proxies().into();
        let memory = gateway.memory().clone();
        Self {
            listener,
            local_only: limits.local_only,
            slots: ConnectionSlots::new(limits.connections, memory, metrics.clone()),
            addresses: AddressLimiter::new(limits.per_address, trusted),
            metrics,
            connections: JoinSet::new(),
            open: HashMap::new(),
        }
    }

    /// Accepts the next connection; `None` if it is rejected or cannot be accepted.
    async fn accept(&mut self) -> Option<AcceptedConnection> {
        let (stream, peer) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause_after_accept_error(&error).await;
                return None;
            }
        };
        let local = stream.local_addr().ok().map(|local| local.ip());
        if self.local_only && !local.is_some_and(|local| local.to_canonical().is_loopback()) {
            return None;
        }
        let Some(address_permit) = self.addresses.admit(peer.ip()) else {
            self.metrics.refused_connections.inc();
            return None;
        };
        let slot = self.free_slot().await;
        Some(AcceptedConnection {
            stream,
            slot: self.slots.assign(slot, address_permit),
            addresses: ClientConnection { peer, local },
        })
    }

    /// Waits for a slot. Idle connections are closed to make room.
    async fn free_slot(&mut self) -> FreeSlot {
        loop {
            while let Some(ended) = self.connections.try_join_next_with_id() {
                self.forget(ended);
            }
            if let Some(slot) = self.slots.try_acquire() {
                return slot;
            }
            self.evict_idle();
            tokio::select! {
                Some(ended) = self.connections.join_next_with_id() => self.forget(ended),
                () = sleep(EVICTION_INTERVAL) => {}
            }
        }
    }

    fn forget(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
    }

    /// Closes the connections that have been idle for longest: a part of all, so that the search
    /// costs little for each.
    fn evict_idle(&self) {
        let idle = self.open.values().filter(|open| !open.close.is_cancelled());
        let idle = idle.filter_map(|open| Some((open.in_flight.idle_time()?, &open.close)));
        let mut idle: Vec<_> = idle
            .filter(|(time, _)| *time >= MIN_EVICTION_IDLE)
            .collect();
        idle.sort_unstable_by_key(|(time, _)| Reverse(*time));
        for (_, close) in idle
            .iter()
            .take(self.open.len().div_ceil(EVICTION_FRACTION))
        {
            close.cancel();
            self.metrics.evicted_connections.inc();
        }
    }

    fn spawn(&mut self, gateway: &Gateway, accepted: AcceptedConnection, close: CancellationToken) {
        let in_flight = InFlightRequests::default();
        let connection = Connection {
            gateway: gateway.clone(),
            addresses: accepted.addresses,
            in_flight: in_flight.clone(),
            close: close.clone(),
        };
        let served = connection.run(accepted.stream, accepted.slot);
        let id = self.connections.spawn(served).id();
        self.open.insert(id, OpenConnection { in_flight, close });
    }

    /// Stops accepting; open connections continue.
    fn close(self) -> JoinSet<()> {
        self.connections
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
    let ended = async {
        connections.join_all().await;
        gateway.tunnels_closed().await;
    };
    if timeout(limit, ended).await.is_err() {
        tracing::warn!("drain timeout reached; closing open connections");
        gateway.abort_tunnels();
        gateway.tunnels_closed().await;
    }
}

struct Connection {
    gateway: Gateway,
    addresses: ClientConnection,
    in_flight: InFlightRequests,
    close: CancellationToken,
}

impl Connection {
    /// Serves one connection until it ends, is idle, resets too many requests, or has no request in
    /// flight after `close`.
    async fn run(self, stream: TcpStream, slot: ConnectionSlot) {
        let (in_flight, close) = (self.in_flight.clone(), self.close.clone());
        let client = ClientStream::new(stream, slot, in_flight.clone());
        let service = service_fn(move |request: Request<Incoming>| self.respond(request));
        let builder = builder();
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(client), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = in_flight.abused() => return,
            () = idle_or_closed(&close, &in_flight) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = in_flight.abused() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "connection closed with an error");
        }
    }

    /// Answers a request, if the memory of clients is not used up.
    fn respond(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<TrackedResponse>, Infallible>> + use<> {
        let (gateway, addresses) = (self.gateway.clone(), self.addresses);
        let (version, in_flight) = (request.version(), self.in_flight.begin());
        let bytes = request_bytes(&request, STREAM_WINDOW as usize);
        let memory = gateway.memory().acquire(bytes);
        let request = request.map(|body| self.in_flight.watch(body));
        async move {
            let response = if memory.is_some() {
                gateway.respond(request, addresses).await
            } else {
                gateway.reject_overloaded()
            };
            let memory = memory.map(|mut memory| {
                memory.shrink_to(REQUEST_BYTES);
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
fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
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
