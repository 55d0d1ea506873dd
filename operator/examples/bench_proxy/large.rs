//! Bodies of a gibibyte, both ways.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::server::LARGE;
use super::way::{Way, read_head};

const PIECE: usize = 64 * 1024;

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
