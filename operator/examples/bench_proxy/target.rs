//! Targets of the load and raw connections to them, which keep the cost of the client low.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A path to the server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    address: SocketAddr,
    pub(crate) host: String,
    /// Processes whose memory and CPU time are measured.
    pub(crate) processes: Vec<u32>,
}

impl Target {
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

    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a tunnel.
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

/// Response head, and how much more has been read.
pub(crate) async fn read_head(stream: &mut TcpStream) -> anyhow::Result<(String, usize)> {
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
