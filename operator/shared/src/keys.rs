//! Secrets that are derived from the root key and not stored, with one subkey per purpose. While the
//! root key is rotated there are two sets of them.
//!
//! A subkey is HKDF-SHA256 of the root key with the purpose as info (RFC 5869), so that the output
//! of one purpose is useless for another. Session keys and runtime ids need no storage.

mod seal;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::identity::IdentityKey;
use crds::contract::sealing;
use crds::contract::token::{Signer, TokenError};
use crds::names;
use jiff::Timestamp;
use ring::{hkdf, hmac};

pub use seal::SealError;

/// Length of the root key in bytes.
pub const ROOT_KEY_LEN: usize = 32;

/// Keys of one installation.
#[derive(derive_more::Debug)]
#[debug("Keys(..)")]
pub struct Keys {
    /// The same for its life: replicas with different ones would start one session twice.
    runtime_id: hmac::Key,
    current: KeySet,
    /// Keys before a rotation, and its time: sandboxes that were created before keep them.
    previous: Option<(KeySet, Timestamp)>,
}

/// Subkeys of one root key. Their `Debug` shows algorithms only.
#[derive(Debug)]
pub struct KeySet {
    session: hmac::Key,
    admin: hmac::Key,
    identity: hmac::Key,
    state: hmac::Key,
    seal: ring::aead::LessSafeKey,
    signer: Signer,
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a root key must have {ROOT_KEY_LEN} bytes, not {0}")]
    Length(usize),
    #[error("cannot derive a subkey")]
    Derivation,
    #[error(transparent)]
    Signer(#[from] TokenError),
}

impl Keys {
    /// Derives all keys from one root key.
    pub fn derive(root: &[u8]) -> Result<Self, KeyError> {
        Ok(Self {
            runtime_id: hmac::Key::new(hmac::HMAC_SHA256, &runtime_id_subkey(root)?),
            current: KeySet::derive(root)?,
            previous: None,
        })
    }

    /// Adds the root key before a rotation, which takes effect at `since`.
    pub(crate) fn with_previous(self, root: &[u8], since: Timestamp) -> Result<Self, KeyError> {
        let previous = Some((KeySet::derive(root)?, since));
        Ok(Self { previous, ..self })
    }

    /// Takes the subkey of runtime ids of the first root key.
    pub(crate) fn with_runtime_ids(self, subkey: &[u8]) -> Self {
        let runtime_id = hmac::Key::new(hmac::HMAC_SHA256, subkey);
        Self { runtime_id, ..self }
    }

    /// Returns the keys of what was created at this time. A Sandbox keeps them for its life: its Pods
    /// know their public key, and its clients their session key.
    pub fn of(&self, created_at: Option<Timestamp>) -> &KeySet {
        match &self.previous {
            Some((keys, until)) if created_at.is_some_and(|at| at < *until) => keys,
            _ => &self.current,
        }
    }

    /// Returns all sets, the current one first.
    pub fn sets(&self) -> impl Iterator<Item = &KeySet> {
        let previous = self.previous.iter().map(|(keys, _)| keys);
        std::iter::once(&self.current).chain(previous)
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

    /// Returns the subkey for administrator logins.
    pub fn admin(&self) -> &hmac::Key {
        &self.current.admin
    }
}

/// Subkey of runtime ids. A rotation keeps it.
pub(crate) fn runtime_id_subkey(root: &[u8]) -> Result<[u8; 32], KeyError> {
    expand(root, "runtime-id")
}

impl KeySet {
    fn derive(root: &[u8]) -> Result<Self, KeyError> {
        if root.len() != ROOT_KEY_LEN {
            return Err(KeyError::Length(root.len()));
        }
        let subkey = |purpose| expand(root, purpose);
        let seal = sealing::aead(&subkey("seal")?).map_err(|_| KeyError::Derivation)?;
        Ok(Self {
            session: hmac::Key::new(hmac::HMAC_SHA256, &subkey("session-key")?),
            admin: hmac::Key::new(hmac::HMAC_SHA256, &subkey("admin")?),
            identity: hmac::Key::new(hmac::HMAC_SHA256, &subkey("identity")?),
            state: hmac::Key::new(hmac::HMAC_SHA256, &subkey("state")?),
            seal,
            signer: Signer::from_seed(&subkey("control")?)?,
        })
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

    /// Identity key of a sandbox: its Pods get it, and prove with it that they are its own.
    pub fn identity_key(&self, uid: &str) -> IdentityKey {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.identity, uid.as_bytes()).as_ref());
        IdentityKey::new(key)
    }

    /// Identity key of a Pod that is created before the sandbox that it will belong to. Uids have no
    /// slash, so it is the key of no sandbox.
    pub fn pod_identity_key(&self, namespace: &str, pod: &str) -> IdentityKey {
        self.identity_key(&format!("{namespace}/{pod}"))
    }

    /// Key that encrypts the state of a sandbox on its volume: 32 bytes of unpadded base64url.
    pub fn state_key(&self, uid: &str) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.state, uid.as_bytes()))
    }

    /// Returns the signer of control calls to supervisors.
    pub fn signer(&self) -> &Signer {
        &self.signer
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
        let (keys, other) = (keys(), Keys::derive(&[4; 32]).unwrap());
        let set = keys.of(None);
        let key = set.session_key("uid");
        assert_eq!(key.len(), 43);
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert_ne!(key, set.session_key("uid2"));
        assert_eq!(key, set.rotated_session_key("uid", 0));
        assert_ne!(key, set.rotated_session_key("uid", 1));
        assert_ne!(key, other.of(None).session_key("uid"));
    }

    #[test]
    fn sandboxes_keep_the_root_key_that_they_were_created_with() {
        let old = keys();
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let sealed = old.seal_log("ns", "a", "text").unwrap();
        let new = || Keys::derive(&[4; 32]).unwrap();
        let rotated = new().with_previous(&[3; 32], at(100).unwrap()).unwrap();
        let rotated = rotated.with_runtime_ids(&runtime_id_subkey(&[3; 32]).unwrap());
        let new = new();
        let key = |keys: &Keys, created| keys.of(created).session_key("uid");
        assert_eq!(key(&rotated, at(99)), key(&old, None));
        for created in [at(100), None] {
            assert_eq!(key(&rotated, created), key(&new, None), "{created:?}");
        }
        assert_eq!(
            rotated.object_runtime_id("uid"),
            old.object_runtime_id("uid")
        );
        assert_eq!(rotated.open_log("ns", "a", &sealed).unwrap(), "text");
        let sealed = rotated.seal_log("ns", "a", "text").unwrap();
        assert_eq!(new.open_log("ns", "a", &sealed).unwrap(), "text");
        assert_eq!(rotated.open_log("ns", "a", &sealed).unwrap(), "text");
        assert_eq!(rotated.sets().count(), 2);
    }

    #[test]
    fn short_root_key_is_rejected() {
        assert!(matches!(Keys::derive(&[0; 31]), Err(KeyError::Length(31))));
    }

    #[test]
    fn debug_output_hides_keys() {
        assert_eq!(format!("{:?}", keys()), "Keys(..)");
        let set = format!("{:?}", keys().of(None));
        assert!(set.contains("SHA256") && !set.contains('['), "{set}");
    }
}
