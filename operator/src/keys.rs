//! Everything secret that is derived and not stored: one root key, one subkey per purpose.
//!
//! A subkey is HKDF-SHA256 of the root key with the purpose as info (RFC 5869), so that no use of
//! one can be turned into another. Session keys and runtime ids need no storage at all.

mod seal;

use crds::contract::token::{Signer, TokenError};
use crds::names;
use ring::{hkdf, hmac};

pub use seal::SealError;

/// Length of the root key in bytes.
pub const ROOT_KEY_LEN: usize = 32;

/// The keys of one installation.
pub struct Keys {
    runtime_id: hmac::Key,
    session: hmac::Key,
    admin: hmac::Key,
    seal: ring::aead::LessSafeKey,
    signer: Signer,
}

/// Why keys could not be derived.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the root key has {0} bytes instead of {ROOT_KEY_LEN}")]
    Length(usize),
    #[error("a subkey cannot be derived")]
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
            seal: ring::aead::LessSafeKey::new(seal),
            signer: Signer::from_seed(&subkey("control")?)?,
        })
    }

    /// The runtime id, and name, of the sandbox of a session. The same session gives the same id
    /// on every replica; a higher epoch gives another one. Bound to the namespace, so that a copy
    /// of the object elsewhere is nobody's session.
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

    /// The runtime id of a sandbox that was not made by the gateway.
    pub fn object_runtime_id(&self, uid: &str) -> String {
        let text = format!("object/{uid}");
        names::runtime_id(hmac::sign(&self.runtime_id, text.as_bytes()).as_ref())
    }

    /// The session key of a sandbox: 43 characters of base62, stable for its life.
    pub fn session_key(&self, uid: &str) -> String {
        self.rotated_session_key(uid, 0)
    }

    /// The session key after so many rotations.
    pub fn rotated_session_key(&self, uid: &str, rotation: u32) -> String {
        let text = format!("session-key/{uid}/{rotation}");
        base62(hmac::sign(&self.session, text.as_bytes()).as_ref())
    }

    /// Signs what administrators log in with.
    pub fn admin(&self) -> &hmac::Key {
        &self.admin
    }

    /// Signs control calls to supervisors.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(..)")
    }
}

struct Len;

impl hkdf::KeyType for Len {
    fn len(&self) -> usize {
        32
    }
}

fn expand(root: &[u8], purpose: &str) -> Result<[u8; 32], KeyError> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"sandbox-operator-v1");
    let mut out = [0; 32];
    salt.extract(root)
        .expand(&[purpose.as_bytes()], Len)
        .and_then(|okm| okm.fill(&mut out))
        .map_err(|_| KeyError::Derivation)?;
    Ok(out)
}

/// 32 bytes as 43 digits of base62, by long division.
pub(crate) fn base62(bytes: &[u8]) -> String {
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
    fn ids_are_stable_and_separate() {
        let (a, b) = (keys(), keys());
        let id = a.session_runtime_id("ns", "default", "s1", 0);
        assert_eq!(id, b.session_runtime_id("ns", "default", "s1", 0));
        assert!(names::is_runtime_id(&id));
        assert_ne!(id, a.session_runtime_id("ns", "default", "s1", 1));
        assert_ne!(id, a.session_runtime_id("ns", "other", "s1", 0));
        assert_ne!(id, a.session_runtime_id("n2", "default", "s1", 0));
        assert_ne!(
            a.session_runtime_id("ns", "a", "b/c", 0),
            a.session_runtime_id("ns", "a/b", "c", 0)
        );
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
    fn a_short_root_key_is_refused() {
        assert!(matches!(Keys::derive(&[0; 31]), Err(KeyError::Length(31))));
    }

    #[test]
    fn nothing_secret_is_printed() {
        assert_eq!(format!("{:?}", keys()), "Keys(..)");
    }
}
