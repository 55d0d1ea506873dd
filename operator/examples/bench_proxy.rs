//! What the proxy costs: requests per second and latencies through it and straight to the server
//! behind it, in one run, because only the comparison means anything on a shared machine.
//!
//! `cargo run --release -p operator --example bench_proxy [connections] [seconds]`

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crds::Sandbox;
use crds::sandbox::{Phase, SandboxSpec, SandboxStatus};
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use operator::gateway::{
    Gateway, GatewayConfig, ProxyConfig, RuntimeClasses, Tenants, WorkspaceConfig, run,
};
use operator::index::Index;
use operator::keys::Keys;
use operator::urls::{Scheme, UrlForm, Urls};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Size of an answer.
const ANSWER: usize = 1024;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let connections = arguments.next().map_or(Ok(50), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let limit = Duration::from_secs(seconds);

    let upstream = serve_answers().await?;
    let (gateway, host) = serve_gateway(upstream.port()).await?;
    for round in 1..=2 {
        println!("round {round}, {connections} connections, {seconds} s each");
        measure("direct", upstream, "x", connections, limit).await?;
        measure("proxy", gateway, &host, connections, limit).await?;
        measure("direct, 1 connection", upstream, "x", 1, limit).await?;
        measure("proxy, 1 connection", gateway, &host, 1, limit).await?;
    }
    Ok(())
}

async fn serve_answers() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let service = service_fn(|_| async {
                let body = Full::new(Bytes::from_static(&[b'x'; ANSWER]));
                Ok::<_, Infallible>(Response::new(body))
            });
            let builder = hyper::server::conn::http1::Builder::new();
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

/// A gateway with one sandbox, whose runtime port is `port`. Returns its address and the host of
/// the sandbox.
async fn serve_gateway(port: u16) -> anyhow::Result<(SocketAddr, String)> {
    let keys = Arc::new(Keys::derive(&[1; 32])?);
    let index = Arc::new(Index::new(keys.clone()));
    index.retain(&HashSet::new());
    let entry = index.apply(&sandbox(port)?);
    let id = entry
        .map(|entry| entry.runtime_id.clone())
        .unwrap_or_default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let client = kube::Client::new(tower::service_fn(no_api), "default");
    let gateway = Gateway::new(&client, config(), keys, index, Tenants::fixed([]));
    tokio::spawn(run(gateway, listener, CancellationToken::new()));
    Ok((address, format!("{id}.localhost")))
}

async fn no_api(_: Request<kube::client::Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    Err(std::io::Error::from(std::io::ErrorKind::NotConnected))
}

fn sandbox(port: u16) -> serde_json::Result<Sandbox> {
    let mut sandbox = Sandbox::new("bench", SandboxSpec::default());
    sandbox.metadata.namespace = Some("default".into());
    sandbox.metadata.uid = Some("bench".into());
    sandbox.metadata.resource_version = Some("1".into());
    sandbox.spec.ports = serde_json::from_value(json!([{"name": "runtime", "port": port}]))?;
    sandbox.status = Some(SandboxStatus {
        phase: Phase::Running,
        pod_ip: Some("127.0.0.1".into()),
        ..SandboxStatus::default()
    });
    Ok(sandbox)
}

fn config() -> GatewayConfig {
    GatewayConfig {
        namespace: "default".into(),
        urls: Urls {
            scheme: Scheme::Http,
            base: "localhost".into(),
            form: UrlForm::Nested,
        },
        workspace: WorkspaceConfig {
            size: "1Gi".into(),
            storage_class: None,
        },
        runtime_classes: RuntimeClasses::default(),
        hold_limit: Duration::from_secs(1),
        start_wait: Duration::from_secs(1),
        drain_limit: Duration::from_secs(1),
        max_connections: 10_000,
        local_only: false,
        proxy: ProxyConfig::default(),
        vitals: Arc::default(),
    }
}

async fn measure(
    name: &str,
    address: SocketAddr,
    host: &str,
    connections: usize,
    limit: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit;
    let clients =
        (0..connections).map(|_| tokio::spawn(client(address, host.to_owned(), deadline)));
    let mut latencies = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        latencies.extend(client.await??);
    }
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(latencies.len() * part / 1000).copied();
    println!(
        "  {name:<22} {:>8} req/s   p50 {:>9?}   p99 {:>9?}",
        latencies.len() as u64 / limit.as_secs().max(1),
        at(500).unwrap_or_default(),
        at(990).unwrap_or_default(),
    );
    Ok(())
}

/// Sends one request after the other, and measures each.
async fn client(
    address: SocketAddr,
    host: String,
    deadline: Instant,
) -> std::io::Result<Vec<Duration>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET /alive HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
    let mut latencies = Vec::new();
    let mut buffer = vec![0; 8192];
    while Instant::now() < deadline {
        let start = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled]) {
            match stream.read(&mut buffer[filled..]).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}

fn is_whole(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    head.is_some_and(|head| answer.len() >= head + 4 + ANSWER)
}
