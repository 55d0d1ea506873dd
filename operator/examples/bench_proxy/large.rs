//! Bodies of 1 GiB in both directions.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::server::LARGE_BODY_BYTES;
use super::target::{Target, read_head};

const CHUNK_BYTES: usize = 64 * 1024;

fn megabytes_per_second(start: Instant) -> f64 {
    f64::from(u32::try_from(LARGE_BODY_BYTES).unwrap_or(u32::MAX))
        / 1e6
        / start.elapsed().as_secs_f64()
}

/// Downloads 1 GiB; returns MB/s.
pub(crate) async fn download(target: &Target) -> anyhow::Result<f64> {
    let mut stream = target.connect().await?;
    let head = format!("GET /down HTTP/1.1\r\nHost: {}\r\n\r\n", target.host);
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    let (_, mut found) = read_head(&mut stream).await?;
    let mut buffer = vec![0; 4 * CHUNK_BYTES];
    let mut end = Vec::new();
    // Chunk framing adds bytes, and the last chunk is empty.
    while found < LARGE_BODY_BYTES || !end.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut buffer).await?;
        anyhow::ensure!(read > 0, "the answer broke off after {found} bytes");
        found += read;
        end.extend_from_slice(&buffer[read.saturating_sub(5)..read]);
        end.drain(..end.len().saturating_sub(5));
    }
    Ok(megabytes_per_second(start))
}

/// Uploads 1 GiB; returns MB/s.
pub(crate) async fn upload(target: &Target) -> anyhow::Result<f64> {
    let mut stream = target.connect().await?;
    let head = format!(
        "POST /up HTTP/1.1\r\nHost: {}\r\nContent-Length: {LARGE_BODY_BYTES}\r\n\r\n",
        target.host
    );
    let start = Instant::now();
    stream.write_all(head.as_bytes()).await?;
    let chunk = vec![b'x'; CHUNK_BYTES];
    for _ in 0..LARGE_BODY_BYTES / CHUNK_BYTES {
        stream.write_all(&chunk).await?;
    }
    read_head(&mut stream).await?;
    Ok(megabytes_per_second(start))
}
