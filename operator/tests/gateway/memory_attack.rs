//! Clients that are not authenticated and take as much memory as they can: unfinished heads of
//! HTTP/1.1, requests of HTTP/2 whose header fields take one byte on the wire, and unfinished TLS
//! handshakes.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Request};
use operator::gateway::GatewayConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::proxy::transport::load;
use crate::support::gateway_fixture::{config, starting};
use crate::support::socket_fixture::{RawConnection, SocketFixture};

/// Memory for clients in this test; `make test-long` takes that of the chart. The chart's memory
/// limit is twice this budget.
const BUDGET_MIB: usize = 64;
/// Unfinished heads, of 120 KiB each, per `BUDGET_MIB`.
const HEADS: usize = 800;
const HEAD_BYTES: usize = 120 * 1024;
/// Requests of HTTP/2, of about half a megabyte each, per `BUDGET_MIB`.
const CONNECTIONS: usize = 4;
const STREAMS: usize = 90;
const FIELDS: usize = 3800;
/// Unfinished TLS handshakes, of 64 KiB each. Without a charge for TLS all would be read.
const HANDSHAKES: usize = 1000;
const TLS_BUDGET_MIB: usize = 16;

/// A value of `/proc/self/status` in KiB.
fn memory_kib(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

async fn unfinished_heads(fixture: &SocketFixture, count: usize) -> Vec<RawConnection> {
    let head = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(HEAD_BYTES));
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = fixture.client("").await;
        // Fails once the gateway has closed it.
        client.send_within_a_moment(head.as_bytes()).await;
        clients.push(client);
    }
    clients
}

async fn many_fields(
    fixture: &SocketFixture,
    connections: usize,
) -> Vec<h2::client::ResponseFuture> {
    let (name, value) = (HeaderName::from_static("a"), HeaderValue::from_static(""));
    let mut fields = HeaderMap::new();
    for _ in 0..FIELDS {
        fields.append(name.clone(), value.clone());
    }
    let mut responses = Vec::new();
    for _ in 0..connections {
        let mut client = fixture.http2().await;
        for _ in 0..STREAMS {
            let mut request = Request::get(format!("http://{}/", fixture.host()))
                .body(())
                .unwrap();
            *request.headers_mut() = fields.clone();
            let Ok(ready) = client.ready().await else {
                break;
            };
            client = ready;
            responses.push(client.send_request(request, true).unwrap().0);
            // Lets the client write, so that its own copies do not count.
            tokio::task::yield_now().await;
        }
    }
    responses
}

async fn unfinished_handshakes() {
    let mut config = config();
    config.client_memory_mib = TLS_BUDGET_MIB;
    config.certificate = Some(load("first.crt", "first.key").unwrap());
    let fixture = SocketFixture::with(config).await;
    // A ClientHello of 65 520 bytes in records of 16 KiB, without its end.
    let mut hello = [b"\x16\x03\x01\x40\0".as_slice(), &[0; 16 * 1024]]
        .concat()
        .repeat(4);
    hello[5..9].copy_from_slice(b"\x01\0\xff\xf0");
    hello.truncate(65_000);
    let before = memory_kib("VmRSS:");
    let mut clients = Vec::new();
    for _ in 0..HANDSHAKES {
        let mut client = fixture.client("").await;
        client.send_within_a_moment(&hello).await;
        clients.push(client);
    }
    drop(clients);
    let connections = &fixture.base.gateway.metrics().connections;
    while connections.get() > 0 {
        tokio::task::yield_now().await;
    }
    let grown = memory_kib("VmHWM:").saturating_sub(before) / 1024;
    assert!(grown < 2 * TLS_BUDGET_MIB, "memory grew by {grown} MiB");
}

#[tokio::test]
async fn unauthenticated_clients_stay_below_the_memory_limit() {
    let values = include_str!("../../../charts/sandbox-operator/values.yaml");
    let gateway = values.split("\ngateway:").nth(1).unwrap();
    let limit = gateway
        .lines()
        .find(|line| line.contains("limits: {memory: "))
        .unwrap();
    assert!(limit.contains("memory: 1Gi}"), "{limit}");
    let default_mib = GatewayConfig::default().client_memory_mib;
    assert!(2 * default_mib <= 1024);
    let is_long = std::env::var_os("LONG_TESTS").is_some();
    let budget_mib = if is_long { default_mib } else { BUDGET_MIB };
    let times = budget_mib / BUDGET_MIB;

    raise_open_files();
    unfinished_handshakes().await;
    let mut config = config();
    config.client_memory_mib = budget_mib;
    let fixture = SocketFixture::with(config).await;
    // Requests to the sandbox are held.
    fixture.base.report(&fixture.id, &starting(true));
    let before = memory_kib("VmRSS:");
    let responses = many_fields(&fixture, CONNECTIONS * times).await;
    let heads = unfinished_heads(&fixture, HEADS * times).await;
    let grown = memory_kib("VmHWM:").saturating_sub(before) / 1024;
    let overloads = fixture.base.gateway.metrics().overloads.get();
    println!("memory grew by {grown} MiB, {overloads} rejections");
    assert!(overloads > 0);
    assert!(grown < 2 * budget_mib, "memory grew by {grown} MiB");
    drop((responses, heads));
    let text = "GET /nothing HTTP/1.1\nHost: gateway\nConnection: close\n\n";
    while !fixture.exchange(text).await.starts_with("HTTP/1.1 404 ") {
        tokio::task::yield_now().await;
    }
}
