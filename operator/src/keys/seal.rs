//! Client environment at rest: encrypted, and bound to the name of the one object it is for.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, NONCE_LEN, Nonce};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::Keys;

/// Version prefix of a sealed environment.
const PREFIX: &str = "v1.";

/// Why an environment could not be sealed or opened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    #[error("the sealed environment is malformed")]
    Malformed,
    #[error("the sealed environment is not for this sandbox, or was made with another root key")]
    Refused,
    #[error("no randomness")]
    Random,
}

impl Keys {
    /// Encrypts an environment for the object `namespace/name`.
    pub fn seal(
        &self,
        namespace: &str,
        name: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| SealError::Random)?;
        let mut data = serde_json::to_vec(environment).map_err(|_| SealError::Malformed)?;
        self.seal
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                bound(namespace, name),
                &mut data,
            )
            .map_err(|_| SealError::Refused)?;
        Ok(format!(
            "{PREFIX}{}",
            STANDARD.encode([&nonce[..], &data].concat())
        ))
    }

    /// Decrypts what [`Keys::seal`] made for the same object.
    pub fn open(
        &self,
        namespace: &str,
        name: &str,
        sealed: &str,
    ) -> Result<BTreeMap<String, String>, SealError> {
        let text = sealed.strip_prefix(PREFIX).ok_or(SealError::Malformed)?;
        let mut data = STANDARD.decode(text).map_err(|_| SealError::Malformed)?;
        let (nonce, data) = data
            .split_first_chunk_mut::<NONCE_LEN>()
            .ok_or(SealError::Malformed)?;
        let plain = self
            .seal
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                bound(namespace, name),
                data,
            )
            .map_err(|_| SealError::Refused)?;
        serde_json::from_slice(plain).map_err(|_| SealError::Malformed)
    }
}

fn bound(namespace: &str, name: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("{namespace}/{name}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_comes_back_only_for_its_own_object() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        let environment = BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]);
        let sealed = keys.seal("ns", "a", &environment).unwrap();
        assert!(!sealed.contains("hunter2"));
        assert_eq!(keys.open("ns", "a", &sealed), Ok(environment));
        assert_eq!(keys.open("ns", "b", &sealed), Err(SealError::Refused));
        assert_eq!(keys.open("n2", "a", &sealed), Err(SealError::Refused));
        let other = Keys::derive(&[2; 32]).unwrap();
        assert_eq!(other.open("ns", "a", &sealed), Err(SealError::Refused));
    }

    #[test]
    fn nonsense_is_refused() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        for text in ["", "v1.", "v1.%%", "v1.AAAA", "v2.AAAA"] {
            assert_eq!(
                keys.open("ns", "a", text),
                Err(SealError::Malformed),
                "{text}"
            );
        }
    }
}
