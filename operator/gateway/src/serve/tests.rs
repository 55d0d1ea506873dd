//! Limits and timeouts of connections, on a paused clock without sockets.

use testing::FakeApi;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

#[test]
fn limits_connections_per_address_except_of_trusted_proxies() {
    let mut config = GatewayConfig {
        max_connections_per_address: 2,
        trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        ..GatewayConfig::default()
    };
    let limit = |config: &_, address: &str| connection_limit(config, address.parse().unwrap());
    assert_eq!(limit(&config, "192.0.2.1"), 2);
    for proxy in ["10.0.0.1", "::ffff:10.0.0.1"] {
        assert_eq!(limit(&config, proxy), usize::MAX);
    }
    config.max_connections_per_address = 0;
    assert_eq!(limit(&config, "192.0.2.1"), usize::MAX);
}

/// The client's end of a connection that has sent `bytes`, and the task that serves it.
async fn client(bytes: impl AsRef<[u8]>) -> (DuplexStream, JoinHandle<()>) {
    let gateway = Gateway::fixture(&FakeApi::default());
    let peer: std::net::SocketAddr = "192.0.2.1:4711".parse().unwrap();
    let parts = &gateway.0;
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let slot = ConnectionSlot {
        memory: parts.memory.acquire(CONNECTION_BYTES).unwrap(),
        transport_bytes: 0,
        overloads: parts.metrics.overloads.clone(),
        address: KeyedLimiter::default().acquire(&peer.ip(), 1).unwrap(),
        _guards: (permit, GaugeGuard::new(&parts.metrics.connections)),
    };
    let connection = Connection {
        addresses: ClientConnection { peer, local: None },
        in_flight: InFlightRequests::default(),
        close: CancellationToken::new(),
        gateway,
    };
    let (mut near, far) = duplex(1 << 16);
    let served = tokio::spawn(connection.serve(far, slot));
    near.write_all(bytes.as_ref()).await.unwrap();
    (near, served)
}

/// Reads a response of the API, which ends with its JSON.
async fn receive(client: &mut DuplexStream) {
    while client.read_u8().await.unwrap() != b'}' {}
}

#[tokio::test(start_paused = true)]
async fn slow_and_silent_clients_are_disconnected() {
    const HTTP_2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let unfinished_http_2 = format!("{HTTP_2}\0\0\u{10}\u{1}\u{1}\0\0\0\u{1}");
    for (sent, seconds) in [
        ("", 90),
        ("PR", 10),
        ("GET / HTTP/1.1\r\nHost: x\r\nX:", 10),
        (HTTP_2, 50),
        (&*unfinished_http_2, 50),
    ] {
        let start = Instant::now();
        let (_client, served) = client(sent).await;
        served.await.unwrap();
        assert_eq!(start.elapsed().as_secs(), seconds, "{sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connection_closes_when_rejected_client_keeps_sending() {
    let start = Instant::now();
    let text = "POST /start HTTP/1.1\r\nHost: gateway\r\nContent-Length: 9\r\n\r\n";
    let (mut sending, served) = client(text).await;
    let mut answer = String::new();
    sending.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    // The response arrived at once; the connection stays open while the client sends.
    assert_eq!(start.elapsed(), Duration::ZERO);
    served.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    // A client that has sent everything is not waited for.
    let start = Instant::now();
    let text = "POST /start HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n";
    let (_client, served) = client(text).await;
    served.await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn idle_connection_stays_open_between_requests() {
    let text = "GET /nothing HTTP/1.1\r\nHost: gateway\r\n\r\n";
    let (mut kept, served) = client(text).await;
    for _ in 0..5 {
        receive(&mut kept).await;
        sleep(Duration::from_secs(70)).await;
        kept.write_all(text.as_bytes()).await.unwrap();
    }
    receive(&mut kept).await;
    let start = Instant::now();
    served.await.unwrap();
    assert!((75..120).contains(&start.elapsed().as_secs()));
}
