//! The servers of all sandboxes, on one real socket: all of 127.0.0.0/8 is this machine, so the address
//! that a connection came to tells which Pod it is for. A Pod whose command does not answer, or that is
//! not there, closes the connection without a word.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{ScriptedNode, ScriptedSupervisors};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

/// Starts them. The port of them all.
pub(super) async fn start(
    node: Arc<ScriptedNode>,
    supervisors: Arc<ScriptedSupervisors>,
) -> std::io::Result<u16> {
    let listener = TcpListener::bind("0.0.0.0:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        // The test fails if nobody answers.
        while let Ok((stream, _)) = listener.accept().await {
            let pod = stream.local_addr().map(|a: SocketAddr| a.ip().to_string());
            if pod.is_ok_and(|ip| node.has(&ip) && supervisors.serves(&ip)) {
                tokio::spawn(answer(stream));
            }
        }
    });
    Ok(port)
}

/// Answers one request, whatever it is.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await?;
    stream.write_all(ANSWER).await?;
    stream.shutdown().await
}
