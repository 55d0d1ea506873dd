//! Sequential clients, each on its own connection.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::compare::Measured;
use super::server::RESPONSE_BYTES;
use super::target::Target;

/// Size of a request body and of a tunnel message in bytes.
const BODY_BYTES: usize = 4096;
const MESSAGE_BYTES: usize = 64;

/// Kind of request. The response is the same.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Get,
    Post,
}

impl Request {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Get => "GET, answer of 1 KiB",
            Self::Post => "POST of 4 KiB, answer of 1 KiB",
        }
    }

    fn bytes(self, host: &str) -> Vec<u8> {
        match self {
            Self::Get => format!("GET /get HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes(),
            Self::Post => {
                let head = format!("POST /post HTTP/1.1\r\nHost: {host}\r\n");
                let head = format!("{head}Content-Length: {BODY_BYTES}\r\n\r\n");
                [head.as_bytes(), &[b'x'; BODY_BYTES]].concat()
            }
        }
    }
}

/// Sends one request after the other on each connection, or at a rate that is spread evenly over
/// all of them.
pub(crate) async fn requests(
    target: Target,
    request: Request,
    connections: u32,
    per_second: Option<u32>,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let (start, gap) = (
        Instant::now(),
        per_second.map(|n| Duration::from_secs(1) / n),
    );
    let client = |target, number, deadline| {
        let ticks = gap.map(|gap| {
            let mut ticks = interval_at(start + gap * (number + 1), gap * connections);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        send_requests(target, request, ticks, deadline)
    };
    run(target, connections, limit, client).await
}

/// Sends one message after the other through each tunnel.
pub(crate) async fn echoes(
    target: Target,
    connections: u32,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let client = |target, _, deadline| echo(target, deadline);
    run(target, connections, limit, client).await
}

/// Runs numbered clients and collects their latencies.
async fn run<F>(
    target: Target,
    connections: u32,
    limit: Duration,
    client: impl Fn(Target, u32, Instant) -> F,
) -> anyhow::Result<Measured>
where
    F: Future<Output = anyhow::Result<Vec<Duration>>> + Send + 'static,
{
    let deadline = Instant::now() + limit;
    let clients = (0..connections).map(|number| client(target.clone(), number, deadline));
    let clients: Vec<_> = clients.map(tokio::spawn).collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    Measured::of(latencies, limit)
}

async fn send_requests(
    target: Target,
    request: Request,
    mut ticks: Option<Interval>,
    deadline: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut stream = target.connect().await?;
    let request = request.bytes(&target.host);
    let (mut latencies, mut buffer) = (Vec::new(), vec![0; 8192]);
    while Instant::now() < deadline {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let start = Instant::now();
        stream.write_all(&request).await?;
        receive(&mut stream, &mut buffer).await?;
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}

/// Reads one response, which must be 200.
async fn receive(stream: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<()> {
    let mut filled = 0;
    while !is_whole(&buffer[..filled])? {
        match stream.read(&mut buffer[filled..]).await? {
            0 => anyhow::bail!("the connection ended"),
            read => filled += read,
        }
    }
    Ok(())
}

/// True if a response is complete: it has a length, or one chunk.
fn is_whole(answer: &[u8]) -> anyhow::Result<bool> {
    const GOOD: &[u8] = b"HTTP/1.1 200 ";
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(false);
    };
    anyhow::ensure!(answer.starts_with(GOOD), "{}", answer.escape_ascii());
    let body = &answer[head + 4..];
    Ok(body.len() == RESPONSE_BYTES || body.ends_with(b"\r\n0\r\n\r\n"))
}

async fn echo(target: Target, deadline: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut stream = target.tunnel().await?;
    let (mut latencies, mut buffer) = (Vec::new(), [0; MESSAGE_BYTES]);
    while Instant::now() < deadline {
        let start = Instant::now();
        stream.write_all(&[b'x'; MESSAGE_BYTES]).await?;
        stream.read_exact(&mut buffer).await?;
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}
