//! The servers of all sandboxes, on one real socket: all of 127.0.0.0/8 is this machine, so the address
//! that a connection came to tells which Pod it is for. A Pod whose command does not answer, or that is
//! not there, closes the connection without a word.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{ScriptedNode, ScriptedSupervisors};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

/// Serves for as long as the test lets it.
pub(super) async fn serve(
    listener: TcpListener,
    node: Arc<ScriptedNode>,
    supervisors: Arc<ScriptedSupervisors>,
) {
    // The test fails if nobody answers.
    while let Ok((stream, _)) = listener.accept().await {
        let pod = stream.local_addr().map(|a: SocketAddr| a.ip().to_string());
        if pod.is_ok_and(|ip| node.has(&ip) && supervisors.serves(&ip)) {
            tokio::spawn(answer(stream));
        }
    }
}

/// Answers one request, whatever it is.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await?;
    stream.write_all(ANSWER).await?;
    stream.shutdown().await
}
