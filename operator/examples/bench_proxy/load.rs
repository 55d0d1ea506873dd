//! Clients that do one thing after the other, each on a connection of its own.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::compare::Measured;
use super::server::ANSWER;
use super::way::Way;

/// Size of a request's body, and of a message through a tunnel.
const BODY: usize = 4096;
const MESSAGE: usize = 64;

/// What is asked for. The answer is the same.
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
                let head = format!("{head}Content-Length: {BODY}\r\n\r\n");
                [head.as_bytes(), &[b'x'; BODY]].concat()
            }
        }
    }
}

/// One request after the other on each connection.
pub(crate) async fn requests(
    way: Way,
    request: Request,
    connections: u32,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let client = |way, _, deadline| ask(way, request, None, deadline);
    run(way, connections, limit, client).await
}

/// So many requests per second, over all connections together and as evenly.
pub(crate) async fn paced_requests(
    way: Way,
    request: Request,
    connections: u32,
    per_second: u32,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let gap = Duration::from_secs(1) / per_second;
    let first = Instant::now() + gap;
    let client = |way, number, deadline| {
        let mut ticks = interval_at(first + gap * number, gap * connections);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ask(way, request, Some(ticks), deadline)
    };
    run(way, connections, limit, client).await
}

/// One message after the other through each tunnel.
pub(crate) async fn echoes(
    way: Way,
    connections: u32,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let client = |way, _, deadline| echo(way, deadline);
    run(way, connections, limit, client).await
}

/// Starts the clients, which are numbered, and takes their latencies together.
async fn run<F>(
    way: Way,
    connections: u32,
    limit: Duration,
    client: impl Fn(Way, u32, Instant) -> F,
) -> anyhow::Result<Measured>
where
    F: Future<Output = anyhow::Result<Vec<Duration>>> + Send + 'static,
{
    let deadline = Instant::now() + limit;
    let clients = (0..connections).map(|number| client(way.clone(), number, deadline));
    let clients: Vec<_> = clients.map(tokio::spawn).collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await??);
    }
    Measured::of(latencies, limit)
}

async fn ask(
    way: Way,
    request: Request,
    mut ticks: Option<Interval>,
    deadline: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let mut stream = way.connect().await?;
    let request = request.bytes(&way.host);
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

/// Reads one answer, which has to be a good one.
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

/// Answers have a length, or one chunk.
fn is_whole(answer: &[u8]) -> anyhow::Result<bool> {
    const GOOD: &[u8] = b"HTTP/1.1 200 ";
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(false);
    };
    anyhow::ensure!(answer.starts_with(GOOD), "{}", answer.escape_ascii());
    let body = &answer[head + 4..];
    Ok(body.len() == ANSWER || body.ends_with(b"\r\n0\r\n\r\n"))
}

async fn echo(way: Way, deadline: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut stream = way.tunnel().await?;
    let (mut latencies, mut buffer) = (Vec::new(), [0; MESSAGE]);
    while Instant::now() < deadline {
        let start = Instant::now();
        stream.write_all(&[b'x'; MESSAGE]).await?;
        stream.read_exact(&mut buffer).await?;
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}
