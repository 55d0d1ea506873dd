//! Load over raw sockets, so that the client costs as little as it can.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval};

use super::processes;
use super::server::{ANSWER, LARGE};

/// Size of a request's body, and of a message through a tunnel.
const BODY: usize = 4096;
const MESSAGE: usize = 64;
const PIECE: usize = 64 * 1024;

/// A way to the server.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    address: SocketAddr,
    host: String,
    /// Processes whose memory and time count.
    pub(crate) processes: Vec<u32>,
}

impl Way {
    pub(crate) fn new(
        name: &'static str,
        address: SocketAddr,
        host: &str,
        processes: Vec<u32>,
    ) -> Self {
        Self {
            name,
            address,
            host: host.to_owned(),
            processes,
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A tunnel that is open.
    pub(crate) async fn tunnel(&self) -> anyhow::Result<TcpStream> {
        let mut stream = self.connect().await?;
        let head = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            self.host
        );
        stream.write_all(head.as_bytes()).await?;
        let (head, _) = read_head(&mut stream).await?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 101"), "{head}");
        Ok(stream)
    }
}

/// Latencies and how many there were in a second.
pub(crate) struct Measured {
    count: u32,
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

/// Measures every way, and prints what it adds to the first.
pub(crate) async fn compare<F>(ways: &[Way], measure: impl Fn(Way) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<Measured>>,
{
    let mut direct: Option<Measured> = None;
    for way in ways {
        let before = processes::cpu_time(&way.processes)?;
        let Measured {
            count,
            per_second,
            p50,
            p99,
        } = measure(way.clone()).await?;
        let used = processes::cpu_time(&way.processes)?.saturating_sub(before);
        let each = used / count.max(1);
        print!(
            "  {:<8} {per_second:>8.0}/s   p50 {p50:>9.1?}   p99 {p99:>9.1?}   CPU {each:>7.1?}",
            way.name
        );
        match &direct {
            None => {
                direct = Some(Measured {
                    count,
                    per_second,
                    p50,
                    p99,
                });
            }
            Some(direct) => {
                let added = |with: Duration, without: Duration| {
                    (with.as_secs_f64() - without.as_secs_f64()) * 1e6
                };
                let (p50, p99) = (added(p50, direct.p50), added(p99, direct.p99));
                print!("   added p50 {p50:>7.0} us   p99 {p99:>7.0} us");
            }
        }
        println!();
    }
    Ok(())
}

/// One request after the other on each connection.
pub(crate) async fn posts(
    way: Way,
    connections: usize,
    limit: Duration,
) -> anyhow::Result<Measured> {
    run(way, connections, limit, |way, deadline| {
        post(way, deadline, None)
    })
    .await
}

/// So many requests per second, over all connections together.
pub(crate) async fn paced_posts(
    way: Way,
    connections: u32,
    per_second: u32,
    limit: Duration,
) -> anyhow::Result<Measured> {
    let gap = Duration::from_secs(connections.into()) / per_second;
    let count = usize::try_from(connections)?;
    run(way, count, limit, |way, deadline| {
        post(way, deadline, Some(gap))
    })
    .await
}

/// One message after the other through each tunnel.
pub(crate) async fn echoes(
    way: Way,
    connections: usize,
    limit: Duration,
) -> anyhow::Result<Measured> {
    run(way, connections, limit, echo).await
}

async fn run<F>(
    way: Way,
    connections: usize,
    limit: Duration,
    client: impl Fn(Way, Instant) -> F,
) -> anyhow::Result<Measured>
where
    F: Future<Output = anyhow::Result<Vec<Duration>>> + Send + 'static,
{
    let deadline = Instant::now() + limit;
    let clients = (0..connections).map(|_| tokio::spawn(client(way.clone(), deadline)));
    let mut latencies = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        latencies.extend(client.await??);
    }
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(latencies.len() * part / 1000).copied();
    let count = u32::try_from(latencies.len())?;
    Ok(Measured {
        count,
        per_second: f64::from(count) / limit.as_secs_f64(),
        p50: at(500).unwrap_or_default(),
        p99: at(990).unwrap_or_default(),
    })
}

async fn post(way: Way, deadline: Instant, gap: Option<Duration>) -> anyhow::Result<Vec<Duration>> {
    let mut stream = way.connect().await?;
    let mut ticks = gap.map(interval);
    let head = format!(
        "POST /post HTTP/1.1\r\nHost: {}\r\nContent-Length: {BODY}\r\n\r\n",
        way.host
    );
    let request = [head.as_bytes(), &[b'x'; BODY]].concat();
    let (mut latencies, mut buffer) = (Vec::new(), vec![0; 8192]);
    while Instant::now() < deadline {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let start = Instant::now();
        stream.write_all(&request).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled]) {
            match stream.read(&mut buffer[filled..]).await? {
                0 => anyhow::bail!("the connection ended"),
                read => filled += read,
            }
        }
        latencies.push(start.elapsed());
    }
    Ok(latencies)
}

/// Answers have a length, or one chunk.
fn is_whole(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    head.is_some_and(|head| {
        let body = &answer[head + 4..];
        body.len() == ANSWER || body.ends_with(b"\r\n0\r\n\r\n")
    })
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

async fn read_head(stream: &mut TcpStream) -> anyhow::Result<(String, usize)> {
    let mut seen = Vec::new();
    loop {
        anyhow::ensure!(stream.read_buf(&mut seen).await? > 0, "no head");
        if let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = seen.len() - end - 4;
            seen.truncate(end);
            return Ok((String::from_utf8(seen)?, rest));
        }
    }
}

fn megabytes_per_second(start: Instant) -> f64 {
    f64::from(u32::try_from(LARGE).unwrap_or(u32::MAX)) / 1e6 / start.elapsed().as_secs_f64()
}

/// 1 GiB from the server, in MB/s.
pub(crate) async fn download(way: &Way) -> anyhow::Result<f64> {
    let mut stream = way.connect().await?;
    let head = format!("GET /down HTTP/1.1\r\nHost: {}\r\n\r\n", way.host);
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    let (_, mut found) = read_head(&mut stream).await?;
    let mut buffer = vec![0; 4 * PIECE];
    let mut end = Vec::new();
    // What chunks add makes it more than the body, and the last one is empty.
    while found < LARGE || !end.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "the answer broke off after {found} bytes");
        found += read;
        end.extend_from_slice(&buffer[read.saturating_sub(5)..read]);
        end.drain(..end.len().saturating_sub(5));
    }
    Ok(megabytes_per_second(start))
}

/// 1 GiB to the server, in MB/s.
pub(crate) async fn upload(way: &Way) -> anyhow::Result<f64> {
    let mut stream = way.connect().await?;
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: {}\r\nContent-Length: {LARGE}\r\n\r\n",
        way.host
    );
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    let piece = vec![b'x'; PIECE];
    for _ in 0..LARGE / PIECE {
        stream.write_all(&piece).await?;
    }
    read_head(&mut stream).await?;
    Ok(megabytes_per_second(start))
}
