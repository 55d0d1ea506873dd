//! Ways to the server, and connections on them: raw sockets, so that the client costs as little as it can.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A way to the server.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    address: SocketAddr,
    pub(crate) host: String,
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

    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
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

/// The head of an answer, and how much more of it has been read.
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
