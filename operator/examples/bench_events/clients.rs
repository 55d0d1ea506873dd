//! Clients that read event streams and note the delay of each event.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::gateway::KEY;

/// Open streams.
pub(crate) struct Clients {
    seen: Arc<Seen>,
    streams: JoinSet<anyhow::Result<()>>,
    count: usize,
}

struct Seen {
    /// Gets a permit for each stream that has its list.
    listed: Semaphore,
    bytes: AtomicUsize,
    /// Times from the event to its reading.
    delays: Mutex<Vec<Duration>>,
}

impl Clients {
    pub(crate) async fn connect(gateway: SocketAddr, count: usize) -> anyhow::Result<Self> {
        let seen = Arc::new(Seen {
            listed: Semaphore::new(0),
            bytes: AtomicUsize::default(),
            delays: Mutex::default(),
        });
        let mut streams = JoinSet::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(gateway).await?;
            let request =
                format!("GET /events HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            streams.spawn(read(stream, seen.clone()));
        }
        Ok(Self {
            seen,
            streams,
            count,
        })
    }

    /// Waits until all have their lists, and returns the bytes that they have read.
    pub(crate) async fn wait_listed(&mut self) -> anyhow::Result<usize> {
        let count = u32::try_from(self.count)?;
        tokio::select! {
            all = self.seen.listed.acquire_many(count) => all?.forget(),
            Some(ended) = self.streams.join_next() => {
                ended??;
                anyhow::bail!("a stream has ended");
            }
        }
        Ok(self.seen.bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn reset(&self) {
        self.seen.delays.lock().clear();
    }

    /// Prints the rate and the delays of events since the last reset.
    pub(crate) fn report(&mut self, time: Duration) -> anyhow::Result<()> {
        anyhow::ensure!(self.streams.try_join_next().is_none(), "a stream has ended");
        let mut delays = std::mem::take(&mut *self.seen.delays.lock());
        if delays.is_empty() {
            return Ok(());
        }
        delays.sort_unstable();
        let delay = |percent: usize| delays[(delays.len() - 1) * percent / 100];
        println!(
            "  {} events per second; delay p50 {:.2?}, p99 {:.2?}, max {:.2?}",
            delays.len() / usize::try_from(time.as_secs().max(1))?,
            delay(50),
            delay(99),
            delay(100),
        );
        Ok(())
    }
}

/// Calls a path as many times, one after the other, and returns the bytes of one answer.
pub(crate) async fn call(gateway: SocketAddr, path: &str, times: u32) -> anyhow::Result<usize> {
    let mut answer = Vec::new();
    for _ in 0..times {
        let mut stream = TcpStream::connect(gateway).await?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        answer.clear();
        stream.read_to_end(&mut answer).await?;
        anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "no answer of {path}");
    }
    Ok(answer.len())
}

async fn read(stream: TcpStream, seen: Arc<Seen>) -> anyhow::Result<()> {
    let mut lines = BufReader::with_capacity(64 << 10, stream);
    let mut line = String::new();
    loop {
        line.clear();
        let bytes = lines.read_line(&mut line).await?;
        anyhow::ensure!(bytes > 0, "the stream has ended");
        seen.bytes.fetch_add(bytes, Ordering::Relaxed);
        if line.starts_with("event: synced") {
            seen.listed.add_permits(1);
        } else if let Some(rest) = line.split_once(r#""change":"changed","at":""#) {
            let at = rest.1.split('"').next().context("a time")?;
            let at: Timestamp = at.parse()?;
            let delay = Timestamp::now().duration_since(at).unsigned_abs();
            seen.delays.lock().push(delay);
        }
    }
}
