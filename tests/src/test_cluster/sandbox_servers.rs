//! The servers and supervisors of all sandboxes, on one real socket: all of 127.0.0.0/8 is this
//! machine, so the local address of a connection tells the Pod. A Pod that does not exist, or whose
//! command does not respond, closes the connection without a response.

use std::net::IpAddr;
use std::sync::Arc;

use crds::contract::endpoint;
use crds::contract::identity::{IdentityKey, NONCE_HEADER, PROOF_HEADER};
use operator::keys::Keys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{ScriptedNode, ScriptedSupervisors};

/// Serves until it is cancelled.
pub(super) async fn serve(
    listener: TcpListener,
    node: Arc<ScriptedNode>,
    supervisors: Arc<ScriptedSupervisors>,
    keys: Arc<Keys>,
) {
    // The test fails if there is no response.
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(address) = stream.local_addr() else {
            continue;
        };
        let ip = address.ip();
        let sandbox = node.sandbox_at(&ip.to_string());
        let sandbox = sandbox.filter(|_| supervisors.serves(&ip.to_string()));
        if let Some(uid) = sandbox {
            tokio::spawn(respond(stream, ip, keys.of(None).identity_key(&uid)));
        }
    }
}

/// Responds to any request, and to an identity request with the proof.
async fn respond(mut stream: TcpStream, ip: IpAddr, identity: IdentityKey) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let length = stream.read(&mut head).await?;
    let head = String::from_utf8_lossy(&head[..length]);
    let body = if head.contains(endpoint::IDENTITY) {
        ""
    } else {
        "{}"
    };
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let nonce = headers.find(|(name, _)| *name == NONCE_HEADER);
    let proof = identity.prove(ip, nonce.unwrap_or_default().1, body.as_bytes());
    let length = body.len();
    let response = format!(
        "HTTP/1.1 200 OK\r\n{PROOF_HEADER}: {proof}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
