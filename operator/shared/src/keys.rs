//! Secrets that are derived from one root key and not stored, with one subkey per purpose.
//!
//! A subkey is HKDF-SHA256 of the root key with the purpose as info (RFC 5869), so that the output
//! of one purpose is useless for another. Session keys and runtime ids need no storage.

mod seal;

use crds::contract::identity::IdentityKey;
use crds::contract::token::{Signer, TokenError};
use crds::names;
use ring::{hkdf, hmac};

pub use seal::SealError;

/// Length of the root key in bytes.
pub const ROOT_KEY_LEN: usize = 32;

/// Subkeys of one installation.
pub struct Keys {
    runtime_id: hmac::Key,
    session: hmac::Key,
    admin: hmac::Key,
    identity: hmac::Key,
    seal: ring::aead::LessSafeKey,
    signer: Signer,
}

/// Failure to derive keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the root key must have {ROOT_KEY_LEN} bytes, not {0}")]
    Length(usize),
    #[error("cannot derive a subkey")]
    Derivation,
    #[error(transparent)]
    Signer(#[from] TokenError),
}

impl Keys {
    /// Derives all subkeys.
    pub fn derive(root: &[u8]) -> Result<Self, KeyError> {
        if root.len() != ROOT_KEY_LEN {
            return Err(KeyError::Length(root.len()));
        }
        let subkey = |purpose| expand(root, purpose);
        let seal = ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, &subkey("seal")?)
            .map_err(|_| KeyError::Derivation)?;
        Ok(Self {
            runtime_id: hmac::Key::new(hmac::HMAC_SHA256, &subkey("runtime-id")?),
            session: hmac::Key::new(hmac::HMAC_SHA256, &subkey("session-key")?),
            admin: hmac::Key::new(hmac::HMAC_SHA256, &subkey("admin")?),
            identity: hmac::Key::new(hmac::HMAC_SHA256, &subkey("identity")?),
            seal: ring::aead::LessSafeKey::new(seal),
            signer: Signer::from_seed(&subkey("control")?)?,
        })
    }

    /// Derives the runtime id, which is also the object name, of a session. It is the same on every
    /// replica and differs per epoch. It is bound to the namespace, so that a copy of the object in
    /// another namespace has no session.
    pub fn session_runtime_id(
        &self,
        namespace: &str,
        tenant: &str,
        session: &str,
        epoch: u32,
    ) -> String {
        let text = format!(
            "session/{epoch}/{namespace}/{}/{tenant}/{session}",
            tenant.len()
        );
        names::runtime_id(hmac::sign(&self.runtime_id, text.as_bytes()).as_ref())
    }

    /// Derives the runtime id of a sandbox that the gateway did not create.
    pub fn object_runtime_id(&self, uid: &str) -> String {
        let text = format!("object/{uid}");
        names::runtime_id(hmac::sign(&self.runtime_id, text.as_bytes()).as_ref())
    }

    /// Derives the session key of a sandbox: 43 characters of base62, stable for its life.
    pub fn session_key(&self, uid: &str) -> String {
        self.rotated_session_key(uid, 0)
    }

    /// Derives the session key after this number of rotations.
    pub fn rotated_session_key(&self, uid: &str, rotation: u32) -> String {
        let text = format!("session-key/{uid}/{rotation}");
        base62(hmac::sign(&self.session, text.as_bytes()).as_ref())
    }

    /// Returns the subkey for administrator logins.
    pub fn admin(&self) -> &hmac::Key {
        &self.admin
    }

    /// Identity key of a sandbox: its Pods get it, and prove with it that they are its own.
    pub fn identity_key(&self, uid: &str) -> IdentityKey {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.identity, uid.as_bytes()).as_ref());
        IdentityKey::new(key)
    }

    /// Returns the signer of control calls to supervisors.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

fn expand(root: &[u8], purpose: &str) -> Result<[u8; 32], KeyError> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"sandbox-operator-v1");
    let mut out = [0; 32];
    salt.extract(root)
        .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut out))
        .map_err(|_| KeyError::Derivation)?;
    Ok(out)
}

/// Encodes 32 bytes as 43 digits of base62, by long division.
pub fn base62(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut number = bytes.to_vec();
    (0..43)
        .map(|_| {
            let rest = number.iter_mut().fold(0_usize, |rest, byte| {
                let value = rest << 8 | usize::from(*byte);
                *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
                value % 62
            });
            char::from(DIGITS[rest])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::derive(&[3; 32]).unwrap()
    }

    #[test]
    fn runtime_ids_are_stable_and_distinct() {
        let (a, b) = (keys(), keys());
        let id = a.session_runtime_id("ns", "a", "b/c", 0);
        assert_eq!(id, b.session_runtime_id("ns", "a", "b/c", 0));
        assert!(names::is_runtime_id(&id));
        for (namespace, tenant, session, epoch) in [
            ("ns", "a", "b/c", 1),
            ("ns", "other", "b/c", 0),
            ("n2", "a", "b/c", 0),
            ("ns", "a/b", "c", 0),
        ] {
            assert_ne!(id, a.session_runtime_id(namespace, tenant, session, epoch));
        }
    }

    #[test]
    fn session_keys_are_base62() {
        let key = keys().session_key("uid");
        assert_eq!(key.len(), 43);
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert_ne!(key, keys().session_key("uid2"));
        assert_eq!(key, keys().rotated_session_key("uid", 0));
        assert_ne!(key, keys().rotated_session_key("uid", 1));
        assert_ne!(key, Keys::derive(&[4; 32]).unwrap().session_key("uid"));
    }

    #[test]
    fn short_root_key_is_rejected() {
        assert!(matches!(Keys::derive(&[0; 31]), Err(KeyError::Length(31))));
    }

    #[test]
    fn debug_output_hides_keys() {
        assert_eq!(format!("{:?}", keys()), "Keys(..)");
    }
}
