//! The network between gateways and Pods, in memory: sockets do not follow a virtual clock.

use std::net::IpAddr;
use std::sync::Arc;

use crds::contract::identity::{IdentityKey, NONCE_HEADER, PROOF_HEADER};
use crds::contract::{CONTROL_PORT, endpoint};
use http::Uri;
use hyper_util::rt::TokioIo;
use operator::gateway::{PodNetwork, PodStream};
use operator::keys::Keys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy, sink};
use tower::BoxError;
use tower::util::BoxCloneSyncService;

use super::{ScriptedNode, ScriptedSupervisors};

/// Bytes that a stream holds in each direction.
const BUFFER_BYTES: usize = 4096;

/// Servers at the addresses of the Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxServers {
    /// Nothing: connections are refused.
    None,
    /// Servers that read and never respond, beside supervisors that do.
    Silent,
    /// Servers that respond whenever the command of their Pod does.
    Responding,
}

#[derive(Clone)]
pub(super) struct SandboxNetwork {
    pub(super) servers: SandboxServers,
    pub(super) node: Arc<ScriptedNode>,
    pub(super) supervisors: Arc<ScriptedSupervisors>,
    pub(super) keys: Arc<Keys>,
}

impl From<SandboxNetwork> for PodNetwork {
    fn from(network: SandboxNetwork) -> Self {
        BoxCloneSyncService::new(tower::service_fn(move |target: Uri| {
            let connected = network.connect(&target);
            async { Ok(TokioIo::new(Box::new(connected?) as Box<dyn PodStream>)) }
        }))
    }
}

impl SandboxNetwork {
    fn connect(&self, target: &Uri) -> Result<DuplexStream, BoxError> {
        let ip = target.host().unwrap_or_default();
        let (near, mut far) = tokio::io::duplex(BUFFER_BYTES);
        let uid = self.node.sandbox_at(ip);
        let responds = self.servers != SandboxServers::None && self.supervisors.serves(ip);
        let uid = uid.filter(|_| responds).ok_or("connection refused")?;
        if self.servers == SandboxServers::Silent && target.port_u16() != Some(CONTROL_PORT) {
            tokio::spawn(async move { copy(&mut far, &mut sink()).await });
        } else {
            let identity = self.keys.of(None).identity_key(&uid);
            tokio::spawn(respond(far, ip.parse()?, identity));
        }
        Ok(near)
    }
}

/// Responds to any request, and to an identity request with the proof.
async fn respond(
    mut stream: DuplexStream,
    ip: IpAddr,
    identity: IdentityKey,
) -> std::io::Result<()> {
    let mut head = [0; BUFFER_BYTES];
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
