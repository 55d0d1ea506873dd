//! Identity key of a sandbox, known to the operator and to the supervisors of its Pods. Proofs of
//! it show that a Pod address belongs to the sandbox, so that a Pod which got the address of
//! another one is noticed before it receives anything.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::LessSafeKey;
use ring::hmac;

use super::sealing::{self, SealingError};

/// Response header of a supervisor with the proof.
pub const PROOF_HEADER: &str = "x-sandbox-proof";

/// Request header of `/v1/identity` with any text that the caller has not used before.
pub const NONCE_HEADER: &str = "x-sandbox-nonce";

/// Maximum length of a nonce in bytes.
pub const MAX_NONCE_BYTES: usize = 128;

const PROOF_CONTEXT: &[u8] = b"sandbox-proof-v1";
const STATE_CONTEXT: &[u8] = b"sandbox-state-v1";

/// Identity key of one sandbox.
#[derive(Clone, Copy, PartialEq, Eq, derive_more::Debug)]
#[debug("IdentityKey(..)")]
pub struct IdentityKey([u8; 32]);

/// Rejection of a text that is not an identity key.
#[derive(Debug, thiserror::Error)]
#[error("the identity key must be 32 bytes of base64url")]
pub struct IdentityKeyError;

impl IdentityKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 32 bytes of unpadded base64url.
    pub fn from_text(text: &str) -> Result<Self, IdentityKeyError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| IdentityKeyError)?;
        bytes.try_into().map(Self).map_err(|_| IdentityKeyError)
    }

    /// Unpadded base64url, for the environment of a supervisor.
    pub fn to_text(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Proof for a response. It covers the address, so that another Pod cannot relay it.
    pub fn prove(self, address: IpAddr, nonce: &str, body: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key(), &proven(address, nonce, body)))
    }

    /// Returns whether a response from `address` to a request with `nonce` has the right proof.
    pub fn verify(self, proof: &str, address: IpAddr, nonce: &str, body: &[u8]) -> bool {
        let Ok(proof) = URL_SAFE_NO_PAD.decode(proof) else {
            return false;
        };
        hmac::verify(&self.key(), &proven(address, nonce, body), &proof).is_ok()
    }

    /// Encrypts what the supervisor stores for the next run of its container.
    pub fn seal_state(self, pod_uid: &str, state: &[u8]) -> Result<Vec<u8>, SealingError> {
        sealing::seal_with_nonce(&self.state_key()?, pod_uid.as_bytes(), state)
    }

    /// Decrypts what [`IdentityKey::seal_state`] made for the same Pod.
    pub fn open_state(self, pod_uid: &str, sealed: &[u8]) -> Result<Vec<u8>, SealingError> {
        sealing::open_with_nonce(&self.state_key()?, pod_uid.as_bytes(), sealed)
    }

    fn key(self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    fn state_key(self) -> Result<LessSafeKey, SealingError> {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.key(), STATE_CONTEXT).as_ref());
        sealing::aead(&key)
    }
}

/// Text under the proof. Nonce and address have a length prefix or a fixed form.
fn proven(address: IpAddr, nonce: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(".{}.{}.{nonce}.", address.to_canonical(), nonce.len());
    [PROOF_CONTEXT, head.as_bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IdentityKey = IdentityKey([1; 32]);

    #[test]
    fn proof_is_bound_to_key_address_nonce_and_body() {
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let proof = KEY.prove(ip, "nonce", b"body");
        assert!(KEY.verify(&proof, ip, "nonce", b"body"));
        assert!(KEY.verify(&proof, "::ffff:10.0.0.1".parse().unwrap(), "nonce", b"body"));
        assert!(!KEY.verify(&proof, "10.0.0.2".parse().unwrap(), "nonce", b"body"));
        assert!(!KEY.verify(&proof, ip, "nonc", b"ebody"));
        assert!(!KEY.verify(&proof, ip, "nonce", b"bod"));
        assert!(!KEY.verify("", ip, "nonce", b"body"));
        assert!(!IdentityKey([2; 32]).verify(&proof, ip, "nonce", b"body"));
    }

    #[test]
    fn key_round_trips_as_text_and_is_not_printed() {
        assert_eq!(IdentityKey::from_text(&KEY.to_text()).unwrap(), KEY);
        assert!(IdentityKey::from_text("short").is_err());
        assert_eq!(format!("{KEY:?}"), "IdentityKey(..)");
    }

    #[test]
    fn state_opens_only_with_its_key_and_pod() {
        let sealed = KEY.seal_state("pod", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_eq!(KEY.open_state("pod", &sealed).unwrap(), b"secret");
        assert!(KEY.open_state("other", &sealed).is_err());
        assert!(IdentityKey([2; 32]).open_state("pod", &sealed).is_err());
        assert!(KEY.open_state("pod", b"rubbish").is_err());
    }
}
