//! A gateway on a real socket, a sandbox behind it, and raw connections to both.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use operator::gateway::{self, GatewayConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::gateway_fixture::{GatewayFixture, config, ready};
use testing::FakeApi;

/// Timeout of a connection from the gateway to the sandbox.
const ARRIVAL: Duration = Duration::from_secs(10);

/// A complete response of a sandbox.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\n\nok";

/// A request for a WebSocket, and the consent of a sandbox.
pub(crate) const UPGRADE: &str = "GET /ws HTTP/1.1\nHost: HOST\nConnection: keep-alive, Upgrade\nUpgrade: websocket\n\
     Sec-WebSocket-Key: k\nSec-WebSocket-Protocol: p\n\n";
pub(crate) const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: websocket\n\
     Sec-WebSocket-Accept: a\nSec-WebSocket-Protocol: p\n\n";

pub(crate) struct SocketFixture {
    pub(crate) base: GatewayFixture,
    /// Listener of the sandbox server.
    pub(crate) upstream: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) id: String,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<()>,
}

impl SocketFixture {
    /// A gateway with one sandbox that is ready at 127.0.0.1.
    pub(crate) async fn new() -> Self {
        Self::with(config()).await
    }

    /// The same with this configuration.
    pub(crate) async fn with(config: GatewayConfig) -> Self {
        Self::over(GatewayFixture::beside(&FakeApi::default(), config)).await
    }

    /// The same on this gateway.
    pub(crate) async fn over(base: GatewayFixture) -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = upstream.local_addr().unwrap().port();
        let id = base.add(port, &ready("127.0.0.1"));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let shutdown = CancellationToken::new();
        let run = gateway::run(base.gateway.clone(), listener, shutdown.clone());
        Self {
            base,
            upstream,
            address,
            id,
            shutdown,
            served: tokio::spawn(run),
        }
    }

    /// Adds a named port of the sandbox, which leads to the same server.
    pub(crate) fn declare(&self, name: &str) {
        let mut made = self.base.stored(&self.id);
        let mut port = made.spec.ports[0].clone();
        port.name = name.into();
        made.spec.ports.push(port);
        let made = self.base.put(&made);
        self.base.index.apply(&made).unwrap();
    }

    /// An HTTP/2 client with prior knowledge.
    pub(crate) async fn http2(&self) -> h2::client::SendRequest<Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client.ready().await.unwrap()
    }

    /// Host of the sandbox.
    pub(crate) fn host(&self) -> String {
        format!("{}.rt.example.com", self.id)
    }

    /// Fills in the sandbox for `HOST` and `ID`.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        text.replace("HOST", &self.host()).replace("ID", &self.id)
    }

    /// Connects and sends `text`, in which `HOST` and `ID` stand for the sandbox.
    pub(crate) async fn client(&self, text: &str) -> RawConnection {
        self.client_at(self.address.ip(), text).await
    }

    pub(crate) async fn client_at(&self, ip: IpAddr, text: &str) -> RawConnection {
        let address = SocketAddr::new(ip, self.address.port());
        let mut connection = RawConnection::new(TcpStream::connect(address).await.unwrap());
        connection.send(&self.fill_in(text)).await;
        connection
    }

    /// Connects from another address.
    pub(crate) async fn client_from(&self, ip: IpAddr, text: &str) -> RawConnection {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(ip, 0)).unwrap();
        let mut connection = RawConnection::new(socket.connect(self.address).await.unwrap());
        connection.send(&self.fill_in(text)).await;
        connection
    }

    /// Accepts the next connection of the gateway to the sandbox.
    pub(crate) async fn sandbox(&self) -> RawConnection {
        let arrived = timeout(ARRIVAL, self.upstream.accept()).await;
        RawConnection::new(arrived.expect("the gateway calls the sandbox").unwrap().0)
    }

    /// Sends a request and returns both connections, and the request head as the sandbox sees it.
    pub(crate) async fn open(&self, text: &str) -> (RawConnection, RawConnection, String) {
        let client = self.client(text).await;
        let mut sandbox = self.sandbox().await;
        let head = sandbox.head().await;
        (client, sandbox, head)
    }

    /// Sends a request that the sandbox answers. Returns both messages as they arrive.
    pub(crate) async fn relay(&self, request: &str, response: &str) -> (String, String) {
        let mut client = self.client(request).await;
        let mut sandbox = self.sandbox().await;
        let forwarded = sandbox.message().await;
        sandbox.send(response).await;
        let returned = client.message().await;
        drop((client, sandbox));
        // The next request opens a connection of its own.
        while self.base.gateway.metrics().upstream_connections.get() > 0 {
            tokio::task::yield_now().await;
        }
        (forwarded, returned)
    }

    /// As [`SocketFixture::relay`], and checks both messages with [`assert_lines`].
    pub(crate) async fn assert_relayed(
        &self,
        request: &str,
        forwarded: &str,
        response: &str,
        returned: &str,
    ) {
        let (at_sandbox, at_client) = self.relay(request, response).await;
        assert_lines(request, &at_sandbox, &self.fill_in(forwarded));
        assert_lines(request, &at_client, &self.fill_in(returned));
    }

    /// Opens a tunnel and returns its ends.
    pub(crate) async fn tunnel(&self) -> (RawConnection, RawConnection) {
        let (mut near, mut far, _) = self.open(UPGRADE).await;
        far.send(SWITCH).await;
        near.head().await;
        (near, far)
    }

    /// Sends a request for a path of the sandbox by HTTP/2, with or without a body.
    pub(crate) async fn http2_send(
        &self,
        client: &mut h2::client::SendRequest<Bytes>,
        request: http::request::Builder,
        is_whole: bool,
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut request = request.body(()).unwrap();
        let uri = format!("http://{}{}", self.host(), request.uri());
        *request.uri_mut() = uri.parse().unwrap();
        *client = client.clone().ready().await.unwrap();
        client.send_request(request, is_whole).unwrap()
    }

    /// Sends a GET by HTTP/2 on a connection of its own, and accepts it at the sandbox.
    pub(crate) async fn http2_get(
        &self,
        path: &str,
    ) -> (
        h2::client::ResponseFuture,
        h2::SendStream<Bytes>,
        RawConnection,
    ) {
        let mut client = self.http2().await;
        let request = http::Request::get(path);
        let (answer, sent) = self.http2_send(&mut client, request, true).await;
        let mut sandbox = self.sandbox().await;
        sandbox.head().await;
        (answer, sent, sandbox)
    }

    /// Sends a request and returns the whole response, after which the gateway closes.
    pub(crate) async fn exchange(&self, text: &str) -> String {
        self.client(text).await.rest().await
    }

    /// Sends a request after which the gateway closes, and checks the start of the response.
    pub(crate) async fn assert_answered(&self, text: &str, status: &str) -> String {
        let answer = self.exchange(text).await;
        assert!(answer.starts_with(status), "{text}{answer}");
        answer
    }
}

/// Asserts that a message has each of these lines, and that a text after `!` is nowhere in it.
pub(crate) fn assert_lines(case: &str, message: &str, expected: &str) {
    for line in expected.lines() {
        let is_met = match line.strip_prefix('!') {
            Some(absent) => !message.contains(absent),
            None => message.lines().any(|found| found == line),
        };
        assert!(is_met, "{case}: {line} in\n{message}");
    }
}

/// One end of a connection.
pub(crate) struct RawConnection {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl RawConnection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            seen: Vec::new(),
        }
    }

    /// Sends text with the line ends of HTTP.
    pub(crate) async fn send(&mut self, text: &str) {
        let text = text.replace('\n', "\r\n");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends bytes; false if the other end does not read them.
    pub(crate) async fn send_within_a_moment(&mut self, bytes: &[u8]) -> bool {
        let sent = self.stream.write_all(bytes);
        let moment = Duration::from_millis(500);
        matches!(tokio::time::timeout(moment, sent).await, Ok(Ok(())))
    }

    /// Reads `count` bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.seen.len() < count {
            assert_ne!(self.stream.read_buf(&mut self.seen).await.unwrap(), 0);
        }
        self.seen.drain(..count).collect()
    }

    /// Reads a chunked body and returns its size.
    pub(crate) async fn skip_chunks(&mut self) -> usize {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        let mut found = 0;
        while !self.seen.ends_with(END) {
            let forget = self.seen.len().saturating_sub(END.len());
            found += self.seen.drain(..forget).count();
            assert_ne!(self.stream.read_buf(&mut self.seen).await.unwrap(), 0);
        }
        found + std::mem::take(&mut self.seen).len()
    }

    /// Reads up to and including `end`, without carriage returns; `None` at the end of the connection.
    pub(crate) async fn try_until(&mut self, end: &str) -> Option<String> {
        let end = end.replace('\n', "\r\n").into_bytes();
        loop {
            let found = self.seen.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                let text = self.seen.drain(..at + end.len()).collect();
                return Some(String::from_utf8(text).unwrap().replace('\r', ""));
            }
            if !matches!(self.stream.read_buf(&mut self.seen).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// As [`RawConnection::try_until`], for an `end` that must arrive.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let text = self.try_until(end).await;
        text.unwrap_or_else(|| panic!("closed: {}", String::from_utf8_lossy(&self.seen)))
    }

    /// Reads a head, in lower case.
    pub(crate) async fn head(&mut self) -> String {
        self.until("\n\n").await.to_lowercase()
    }

    /// Reads a head, in lower case, and its body.
    pub(crate) async fn message(&mut self) -> String {
        let head = self.head().await;
        let mut lines = head.lines();
        let length = lines.find_map(|line| line.strip_prefix("content-length: "));
        let body = match length {
            Some(length) => String::from_utf8(self.bytes(length.parse().unwrap()).await).unwrap(),
            None if head.contains("transfer-encoding: chunked") => self.until("\n\n").await,
            None if head.starts_with("http/1.0 ") => self.rest().await,
            None => String::new(),
        };
        head + &body
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        String::from_utf8(self.drain().await)
            .unwrap()
            .replace('\r', "")
    }

    /// As [`RawConnection::rest`], for bytes that are not text.
    pub(crate) async fn drain(&mut self) -> Vec<u8> {
        while matches!(self.stream.read_buf(&mut self.seen).await, Ok(1..)) {}
        std::mem::take(&mut self.seen)
    }

    /// Shuts down the sending direction.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }
}
