//! Proof that an open connection leads to a Pod of the right sandbox. The index may be behind, and
//! another tenant's Pod may have the address by now: it must receive neither key nor body.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use crds::contract::identity::{IdentityKey, NONCE_HEADER, PROOF_HEADER};
use crds::contract::{CONTROL_PORT, endpoint};
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::pod_network::PodNetwork;

const PROOF_TIMEOUT: Duration = Duration::from_secs(2);
/// Below the 10 seconds after which supervisors close idle connections.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the response, which is empty.
const MAX_BODY_BYTES: usize = 1024;

/// Pod that has to prove its address.
#[derive(Debug)]
pub(super) struct ProvablePod {
    pub(super) identity: IdentityKey,
    /// Start of the latest proof. One proof runs at a time.
    proven_from: Mutex<Option<Instant>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ProofError {
    #[error("cannot read random bytes from the operating system")]
    Random,
    #[error("the supervisor does not respond")]
    NoResponse,
    #[error("the address belongs to another Pod")]
    OtherPod,
}

/// Client of the supervisors' identity endpoint.
#[derive(Debug, Clone)]
pub(super) struct AddressProver {
    client: Client<PodNetwork, Empty<Bytes>>,
}

impl ProvablePod {
    pub(super) fn new(identity: IdentityKey) -> Self {
        Self {
            identity,
            proven_from: Mutex::default(),
        }
    }
}

impl AddressProver {
    pub(super) fn new(network: PodNetwork) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build(network);
        Self { client }
    }

    /// Requires a proof begun after a connection was open; it covers all that were open before it.
    pub(super) async fn prove(
        &self,
        pod: &ProvablePod,
        address: IpAddr,
        opened: Instant,
    ) -> Result<(), ProofError> {
        let mut proven_from = pod.proven_from.lock().await;
        if proven_from.is_some_and(|from| from >= opened) {
            return Ok(());
        }
        let start = Instant::now();
        let proof = timeout(PROOF_TIMEOUT, self.request(pod.identity, address)).await;
        proof.unwrap_or(Err(ProofError::NoResponse))?;
        *proven_from = Some(start);
        Ok(())
    }

    async fn request(&self, identity: IdentityKey, address: IpAddr) -> Result<(), ProofError> {
        let nonce = nonce()?;
        let request = Request::builder()
            .uri(format!(
                "http://{}{}",
                SocketAddr::new(address, CONTROL_PORT),
                endpoint::IDENTITY
            ))
            .header(NONCE_HEADER, &nonce)
            .body(Empty::new());
        let request = request.map_err(|_| ProofError::NoResponse)?;
        let response = self.client.request(request).await;
        let (head, body) = response.map_err(|_| ProofError::NoResponse)?.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|_| ProofError::OtherPod)?.to_bytes();
        let proof = head.headers.get(PROOF_HEADER).and_then(|p| p.to_str().ok());
        let is_own = proof.is_some_and(|p| identity.verify(p, address, &nonce, &body));
        is_own.then_some(()).ok_or(ProofError::OtherPod)
    }
}

fn nonce() -> Result<String, ProofError> {
    let mut bytes = [0; 16];
    let random = SystemRandom::new();
    random.fill(&mut bytes).map_err(|_| ProofError::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
