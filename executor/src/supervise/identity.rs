//! Identity of the Pod: proofs for responses, and encryption of the stored init token. Processes of
//! the command may have the same user as PID 1, so file modes do not protect the token.

use std::net::IpAddr;

use crds::contract::identity::IdentityKey;
use crds::contract::sealing::SealingError;

/// Identity key of the sandbox, and the Pod that uses it.
#[derive(Debug, Clone)]
pub(super) struct PodIdentity {
    pub(super) key: IdentityKey,
    pub(super) pod_uid: String,
    pub(super) address: IpAddr,
}

impl PodIdentity {
    /// Proof for a response to a request with this nonce.
    pub(super) fn prove(&self, nonce: &str, body: &[u8]) -> String {
        self.key.prove(self.address, nonce, body)
    }

    pub(super) fn seal(&self, token: &str) -> Result<Vec<u8>, SealingError> {
        self.key.seal_state(&self.pod_uid, token.as_bytes())
    }

    pub(super) fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, SealingError> {
        self.key.open_state(&self.pod_uid, sealed)
    }
}
