//! A gateway on a real socket, a sandbox behind it, and clients that see every byte.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{process, thread};

use bytes::Bytes;
use operator::gateway::GatewayConfig;
use operator::gateway::serve::{Limits, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fake_api::FakeApi;
use super::world::{World, config, ready, sandbox};

/// How long the gateway may take to call the sandbox before a test gives up.
const ARRIVAL: Duration = Duration::from_secs(10);

/// How long a test may take, on a machine that does much else.
const LONGEST: Duration = Duration::from_mins(10);

/// A whole answer of a sandbox.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\n\nok";

pub(crate) const LIMITS: Limits = Limits {
    connections: 1024,
    per_address: None,
    delay: Duration::ZERO,
    drain: Duration::from_millis(50),
    local_only: false,
};

pub(crate) struct Stage {
    pub(crate) world: World,
    /// Where the sandbox's server listens.
    pub(crate) upstream: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) id: String,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<()>,
    _watch: Watch,
}

/// Ends a test that hangs, with its name, so that it does not take all others with it in silence. Time of
/// the machine: that of a test may be paused.
pub(crate) struct Watch {
    _ended: mpsc::Sender<()>,
}

impl Watch {
    fn begin() -> Self {
        let (ended, end) = mpsc::channel();
        let test = thread::current().name().unwrap_or_default().to_owned();
        thread::spawn(move || {
            if end.recv_timeout(LONGEST) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test} has taken more than {LONGEST:?}");
                process::exit(1);
            }
        });
        Self { _ended: ended }
    }
}

impl Stage {
    /// A sandbox that is ready at 127.0.0.1.
    pub(crate) async fn new() -> Self {
        Self::with(config(), LIMITS).await
    }

    /// The same behind a gateway with other settings.
    pub(crate) async fn with(config: GatewayConfig, limits: Limits) -> Self {
        let world = World::beside(&FakeApi::default(), config);
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = upstream.local_addr().unwrap().port();
        let made = world.api.put(&sandbox(&world.keys, port));
        world.index.apply(&made).unwrap();
        let id = made.metadata.name.unwrap();
        world.report(&id, &ready("127.0.0.1"));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(run(
            world.gateway.clone(),
            listener,
            limits,
            shutdown.clone(),
        ));
        Self {
            world,
            upstream,
            address,
            id,
            shutdown,
            served,
            _watch: Watch::begin(),
        }
    }

    /// Gives the sandbox one more named port, which leads to the same server.
    pub(crate) fn declare(&self, name: &str) {
        let mut made = self.world.api.get(&self.id);
        let mut port = made.spec.ports[0].clone();
        port.name = name.into();
        made.spec.ports.push(port);
        let made = self.world.api.put(&made);
        self.world.index.apply(&made).unwrap();
    }

    /// An HTTP/2 client with prior knowledge.
    pub(crate) async fn http2(&self) -> h2::client::SendRequest<Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        client.ready().await.unwrap()
    }

    /// The sandbox's own host.
    pub(crate) fn host(&self) -> String {
        format!("{}.rt.example.com", self.id)
    }

    /// A client that has sent `text`, in which `HOST` stands for the sandbox's host.
    pub(crate) async fn client(&self, text: &str) -> Wire {
        self.client_at(self.address.ip(), text).await
    }

    pub(crate) async fn client_at(&self, ip: IpAddr, text: &str) -> Wire {
        let address = SocketAddr::new(ip, self.address.port());
        let mut wire = Wire::new(TcpStream::connect(address).await.unwrap());
        wire.send(&text.replace("HOST", &self.host())).await;
        wire
    }

    /// A client with another address than all others.
    pub(crate) async fn client_from(&self, ip: IpAddr, text: &str) -> Wire {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(ip, 0)).unwrap();
        let mut wire = Wire::new(socket.connect(self.address).await.unwrap());
        wire.send(&text.replace("HOST", &self.host())).await;
        wire
    }

    /// The next connection of the gateway to the sandbox.
    pub(crate) async fn sandbox(&self) -> Wire {
        let arrived = timeout(ARRIVAL, self.upstream.accept()).await;
        Wire::new(arrived.expect("the gateway calls the sandbox").unwrap().0)
    }

    /// Sends a request and returns the whole answer of the gateway, which closes then.
    pub(crate) async fn exchange(&self, text: &str) -> String {
        self.client(text).await.rest().await
    }
}

async fn run(
    gateway: operator::gateway::Gateway,
    listener: TcpListener,
    limits: Limits,
    shutdown: CancellationToken,
) {
    let drained = CancellationToken::new();
    let serving = async {
        serve(&gateway, listener, limits, &shutdown).await;
        drained.cancel();
    };
    tokio::join!(serving, gateway.follow_pods(&drained));
}

/// One end of a connection.
pub(crate) struct Wire {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            seen: Vec::new(),
        }
    }

    /// Sends text whose lines end as HTTP wants it.
    pub(crate) async fn send(&mut self, text: &str) {
        let text = text.replace('\n', "\r\n");
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends bytes; false if the other end takes none for a moment.
    pub(crate) async fn send_within_a_moment(&mut self, bytes: &[u8]) -> bool {
        let sent = self.stream.write_all(bytes);
        let moment = Duration::from_millis(500);
        matches!(tokio::time::timeout(moment, sent).await, Ok(Ok(())))
    }

    /// Reads so many bytes.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.seen.len() < count {
            assert_ne!(self.stream.read_buf(&mut self.seen).await.unwrap(), 0);
        }
        self.seen.drain(..count).collect()
    }

    /// Reads so many bytes, and keeps none.
    pub(crate) async fn skip(&mut self, bytes: usize) {
        let mut found = 0;
        loop {
            found += std::mem::take(&mut self.seen).len();
            if found >= bytes {
                break;
            }
            assert_ne!(self.stream.read_buf(&mut self.seen).await.unwrap(), 0);
        }
        assert_eq!(found, bytes);
    }

    /// Reads a chunked body to its end, and says how many bytes have come.
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

    /// Reads up to and including `end`, with line ends made plain.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let end = end.replace('\n', "\r\n").into_bytes();
        loop {
            let found = self.seen.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                let text = self.seen.drain(..at + end.len()).collect();
                return String::from_utf8(text).unwrap().replace('\r', "");
            }
            let read = self.stream.read_buf(&mut self.seen).await.unwrap();
            assert_ne!(read, 0, "closed: {}", String::from_utf8_lossy(&self.seen));
        }
    }

    /// Reads a head, in lower case.
    pub(crate) async fn head(&mut self) -> String {
        self.until("\n\n").await.to_lowercase()
    }

    /// Reads to the end of a head; false if none comes any more.
    pub(crate) async fn has_head(&mut self) -> bool {
        const END: &[u8] = b"\r\n\r\n";
        loop {
            if let Some(at) = self.seen.windows(END.len()).position(|w| w == END) {
                self.seen.drain(..at + END.len());
                return true;
            }
            if !matches!(self.stream.read_buf(&mut self.seen).await, Ok(1..)) {
                return false;
            }
        }
    }

    /// Reads to the end, however it comes.
    pub(crate) async fn rest(&mut self) -> String {
        while self
            .stream
            .read_buf(&mut self.seen)
            .await
            .is_ok_and(|n| n > 0)
        {}
        String::from_utf8(std::mem::take(&mut self.seen))
            .unwrap()
            .replace('\r', "")
    }

    /// Reads to the end, whatever comes.
    pub(crate) async fn drain(&mut self) {
        while self
            .stream
            .read_buf(&mut self.seen)
            .await
            .is_ok_and(|n| n > 0)
        {}
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }
}
