//! Encryption of client environments and failure logs at rest, bound to the name of their object.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crds::contract::sealing::{open_with_nonce, seal_with_nonce};
use jiff::Timestamp;
use ring::aead::NONCE_LEN;

use super::{KeySet, Keys};

/// Version prefix of sealed data.
const PREFIX: &str = "v1.";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    #[error("the sealed environment is malformed")]
    Malformed,
    #[error("the sealed environment is not for this sandbox, or was made with another root key")]
    Refused,
    #[error("cannot read random bytes from the operating system")]
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
        let data = serde_json::to_vec(environment).map_err(|_| SealError::Malformed)?;
        self.seal_bytes(&format!("{namespace}/{name}"), &data)
    }

    /// Decrypts what [`Keys::seal`] made for the same object.
    pub fn open(
        &self,
        namespace: &str,
        name: &str,
        sealed: &str,
    ) -> Result<BTreeMap<String, String>, SealError> {
        let plain = self.open_bytes(&format!("{namespace}/{name}"), sealed)?;
        serde_json::from_slice(&plain).map_err(|_| SealError::Malformed)
    }

    /// Encrypts the log tail of the object `namespace/name`: programs print secrets.
    pub fn seal_log(&self, namespace: &str, name: &str, log: &str) -> Result<String, SealError> {
        self.seal_bytes(&format!("{namespace}/{name}/log"), log.as_bytes())
    }

    /// Decrypts what [`Keys::seal_log`] made for the same object.
    pub fn open_log(&self, namespace: &str, name: &str, sealed: &str) -> Result<String, SealError> {
        let plain = self.open_bytes(&format!("{namespace}/{name}/log"), sealed)?;
        String::from_utf8(plain).map_err(|_| SealError::Malformed)
    }

    fn seal_bytes(&self, bound: &str, data: &[u8]) -> Result<String, SealError> {
        // Before the rotation takes effect, some processes may not know the new key.
        let key = &self.of(Some(Timestamp::now())).seal;
        let sealed = seal_with_nonce(key, bound.as_bytes(), data);
        let text = STANDARD.encode(sealed.map_err(|_| SealError::Random)?);
        Ok(format!("{PREFIX}{text}"))
    }

    fn open_bytes(&self, bound: &str, sealed: &str) -> Result<Vec<u8>, SealError> {
        let text = sealed.strip_prefix(PREFIX).ok_or(SealError::Malformed)?;
        let data = STANDARD.decode(text).map_err(|_| SealError::Malformed)?;
        if data.len() < NONCE_LEN {
            return Err(SealError::Malformed);
        }
        let open = |keys: &KeySet| open_with_nonce(&keys.seal, bound.as_bytes(), &data).ok();
        self.sets().find_map(open).ok_or(SealError::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_opens_only_for_its_own_object() {
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
    fn log_does_not_open_as_environment() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        let sealed = keys.seal_log("ns", "a", "{}").unwrap();
        assert_eq!(keys.open_log("ns", "a", &sealed), Ok("{}".into()));
        assert_eq!(keys.open_log("ns", "b", &sealed), Err(SealError::Refused));
        assert_eq!(keys.open("ns", "a", &sealed), Err(SealError::Refused));
    }

    #[test]
    fn malformed_data_is_rejected() {
        let keys = Keys::derive(&[1; 32]).unwrap();
        for text in ["", "v1.", "v1.%%", "v1.AAAA", "v2.AAAA"] {
            let opened = keys.open("ns", "a", text);
            assert_eq!(opened, Err(SealError::Malformed), "{text}");
        }
    }
}
