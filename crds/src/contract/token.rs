//! Tokens of two dot-separated parts of unpadded base64url: JSON and Ed25519 signature. A sandbox
//! knows only the public key, so that code which takes over a sandbox cannot sign control calls.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Domain separation: the signature covers this text and the payload.
const CONTEXT: &str = "sandbox-control-v1.";

/// Maximum length of a token in bytes: 1 MiB of environment, encrypted and encoded twice.
pub const MAX_TOKEN_BYTES: usize = 3 << 20;

/// Private half of the control key.
#[derive(derive_more::Debug)]
#[debug("Signer(..)")]
pub struct Signer(Ed25519KeyPair);

/// Public half of the control key.
#[derive(Clone, derive_more::Debug)]
#[debug("Verifier({})", URL_SAFE_NO_PAD.encode(_0))]
pub struct Verifier(Vec<u8>);

/// Rejection of a token or key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("the token is too long")]
    TooLong,
    #[error("the token is malformed")]
    Malformed,
    #[error("the signature is wrong")]
    Signature,
    #[error("the key is not an Ed25519 public key in base64url")]
    Key,
}

impl Signer {
    /// Derives the key pair from a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, TokenError> {
        Ed25519KeyPair::from_seed_unchecked(seed)
            .map(Self)
            .map_err(|_| TokenError::Key)
    }

    /// Public key in base64url, for the environment of a Pod.
    pub fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref())
    }

    /// Signs the JSON form of `statement`.
    pub fn sign(&self, statement: &impl Serialize) -> Result<String, TokenError> {
        let json = serde_json::to_vec(statement).map_err(|_| TokenError::Malformed)?;
        let payload = URL_SAFE_NO_PAD.encode(json);
        let signature = self.0.sign(format!("{CONTEXT}{payload}").as_bytes());
        Ok(format!(
            "{payload}.{}",
            URL_SAFE_NO_PAD.encode(signature.as_ref())
        ))
    }
}

impl Verifier {
    /// Reads 32 bytes of base64url.
    pub fn new(public_key: &str) -> Result<Self, TokenError> {
        let key = URL_SAFE_NO_PAD
            .decode(public_key)
            .map_err(|_| TokenError::Key)?;
        if key.len() == 32 {
            Ok(Self(key))
        } else {
            Err(TokenError::Key)
        }
    }

    /// Verifies the signature before it reads the payload.
    pub fn open<T: DeserializeOwned>(&self, token: &str) -> Result<T, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let (payload, signature) = token.split_once('.').ok_or(TokenError::Malformed)?;
        let signature = URL_SAFE_NO_PAD
            .decode(signature)
            .map_err(|_| TokenError::Malformed)?;
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(format!("{CONTEXT}{payload}").as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        let json = URL_SAFE_NO_PAD
            .decode(payload)
            .map_err(|_| TokenError::Malformed)?;
        serde_json::from_slice(&json).map_err(|_| TokenError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Signer, Verifier) {
        let signer = Signer::from_seed(&[7; 32]).unwrap();
        let verifier = Verifier::new(&signer.public_key()).unwrap();
        (signer, verifier)
    }

    #[test]
    fn signed_statement_round_trips() {
        let (signer, verifier) = pair();
        let token = signer.sign(&vec!["a", "b"]).unwrap();
        assert_eq!(verifier.open::<Vec<String>>(&token).unwrap(), ["a", "b"]);
    }

    #[test]
    fn token_with_any_changed_byte_is_rejected() {
        let (signer, verifier) = pair();
        let token = signer.sign(&"hello").unwrap();
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(verifier.open::<String>(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn token_of_another_key_is_rejected() {
        let (signer, _) = pair();
        let other = Signer::from_seed(&[8; 32]).unwrap();
        let verifier = Verifier::new(&other.public_key()).unwrap();
        let token = signer.sign(&1).unwrap();
        assert_eq!(verifier.open::<u8>(&token), Err(TokenError::Signature));
    }

    #[test]
    fn malformed_token_or_key_is_rejected() {
        let (_, verifier) = pair();
        assert_eq!(verifier.open::<u8>(""), Err(TokenError::Malformed));
        assert_eq!(verifier.open::<u8>("a.%"), Err(TokenError::Malformed));
        assert_eq!(verifier.open::<u8>("a.AAAA"), Err(TokenError::Signature));
        let long = "a".repeat(MAX_TOKEN_BYTES + 1);
        assert_eq!(verifier.open::<u8>(&long), Err(TokenError::TooLong));
        assert!(Verifier::new("short").is_err());
    }
}
