//! Encryption of init messages to a key of the Pod: X25519, HKDF-SHA256, ChaCha20-Poly1305. A Pod
//! that receives the message of another one cannot read it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::agreement::{self, EphemeralPrivateKey, UnparsedPublicKey, X25519};
use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

const CONTEXT: &[u8] = b"sandbox-init-v1";

/// Failure of encryption or decryption.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
pub enum SealingError {
    #[error("cannot read random bytes from the operating system")]
    Random,
    #[error("the message is malformed")]
    Malformed,
    #[error("the message is not for this key")]
    OtherKey,
}

/// Private key of a dormant supervisor. It opens one message.
#[derive(derive_more::Debug)]
#[debug("SealingKey({public})")]
pub struct SealingKey {
    private: EphemeralPrivateKey,
    public: String,
}

/// An init message that only the holder of one [`SealingKey`] can read. Binary fields are unpadded
/// base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SealedInit {
    /// Public key of the recipient.
    pub recipient: String,
    /// Public half of the key of this message.
    pub ephemeral: String,
    /// Encrypted JSON of an init message.
    pub data: String,
}

impl SealingKey {
    /// Makes a new key.
    pub fn generate() -> Result<Self, SealingError> {
        let (private, public) = key_pair()?;
        Ok(Self { private, public })
    }

    /// Public key in unpadded base64url.
    pub fn public_key(&self) -> &str {
        &self.public
    }

    /// Decrypts a message for this key and Pod.
    pub fn open<T: DeserializeOwned>(
        self,
        sealed: &SealedInit,
        pod_uid: &str,
    ) -> Result<T, SealingError> {
        if sealed.recipient != self.public {
            return Err(SealingError::OtherKey);
        }
        let mut data = decode(&sealed.data)?;
        let key = agree(self.private, &sealed.ephemeral, sealed, pod_uid)?;
        let plain = aead(&key)?
            .open_in_place(single_use_nonce(), Aad::empty(), &mut data)
            .map_err(|_| SealingError::OtherKey)?;
        serde_json::from_slice(plain).map_err(|_| SealingError::Malformed)
    }
}

impl SealedInit {
    /// Encrypts an init message to the public key of a Pod.
    pub fn seal(
        init: &impl Serialize,
        recipient: &str,
        pod_uid: &str,
    ) -> Result<Self, SealingError> {
        let (private, ephemeral) = key_pair()?;
        let mut sealed = Self {
            recipient: recipient.to_owned(),
            ephemeral,
            data: String::new(),
        };
        let key = agree(private, recipient, &sealed, pod_uid)?;
        let mut data = serde_json::to_vec(init).map_err(|_| SealingError::Malformed)?;
        aead(&key)?
            .seal_in_place_append_tag(single_use_nonce(), Aad::empty(), &mut data)
            .map_err(|_| SealingError::Malformed)?;
        sealed.data = URL_SAFE_NO_PAD.encode(data);
        Ok(sealed)
    }
}

/// Encrypts with a long-lived key. The random nonce is put before the result.
pub fn seal_with_nonce(
    key: &LessSafeKey,
    bound: &[u8],
    plain: &[u8],
) -> Result<Vec<u8>, SealingError> {
    let mut nonce = [0; NONCE_LEN];
    let random = SystemRandom::new();
    random.fill(&mut nonce).map_err(|_| SealingError::Random)?;
    let mut data = plain.to_vec();
    let unique = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(unique, Aad::from(bound), &mut data)
        .map_err(|_| SealingError::Malformed)?;
    Ok([&nonce[..], &data].concat())
}

/// Decrypts the result of [`seal_with_nonce`].
pub fn open_with_nonce(
    key: &LessSafeKey,
    bound: &[u8],
    sealed: &[u8],
) -> Result<Vec<u8>, SealingError> {
    let split = sealed.split_first_chunk::<NONCE_LEN>();
    let (nonce, data) = split.ok_or(SealingError::Malformed)?;
    let mut data = data.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = key.open_in_place(nonce, Aad::from(bound), &mut data);
    plain
        .map(|p| p.to_vec())
        .map_err(|_| SealingError::OtherKey)
}

fn key_pair() -> Result<(EphemeralPrivateKey, String), SealingError> {
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new());
    let private = private.map_err(|_| SealingError::Random)?;
    let public = private.compute_public_key();
    let public = public.map_err(|_| SealingError::Random)?;
    Ok((private, URL_SAFE_NO_PAD.encode(public)))
}

/// Key of one message. Both public keys and the Pod are part of the derivation.
fn agree(
    private: EphemeralPrivateKey,
    peer: &str,
    sealed: &SealedInit,
    pod_uid: &str,
) -> Result<[u8; 32], SealingError> {
    let peer = UnparsedPublicKey::new(&X25519, decode(peer)?);
    let info = [&sealed.recipient, &sealed.ephemeral, pod_uid].map(str::as_bytes);
    let derive = |shared: &[u8]| {
        let mut key = [0; 32];
        hkdf::Salt::new(hkdf::HKDF_SHA256, CONTEXT)
            .extract(shared)
            .expand(&info, hkdf::HKDF_SHA256)
            .and_then(|output| output.fill(&mut key))
            .map(|()| key)
    };
    let agreed = agreement::agree_ephemeral(private, &peer, derive);
    let agreed = agreed.map_err(|_| SealingError::Malformed)?;
    agreed.map_err(|_| SealingError::Malformed)
}

/// Prepares a key for encryption.
pub fn aead(key: &[u8; 32]) -> Result<LessSafeKey, SealingError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key);
    key.map(LessSafeKey::new)
        .map_err(|_| SealingError::Malformed)
}

/// Nonce for a key that encrypts one message.
fn single_use_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn decode(text: &str) -> Result<Vec<u8>, SealingError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| SealingError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::super::control::{Init, Probe};
    use super::*;

    fn init() -> Init {
        Init {
            sandbox_uid: None,
            state: None,
            command: vec!["true".into()],
            working_dir: "/".into(),
            environment: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            probe: Probe {
                port: None,
                path: None,
            },
        }
    }

    #[test]
    fn sealed_init_opens_only_with_its_key_for_its_pod() {
        let key = || SealingKey::generate().unwrap();
        let seal = |key: &SealingKey| SealedInit::seal(&init(), key.public_key(), "pod").unwrap();
        let mine = key();
        assert_eq!(seal(&mine).open_with(mine, "pod"), Ok(init()));
        let mine = key();
        assert!(seal(&mine).open_with(mine, "other").is_err());
        let (mine, stand_in) = (key(), key());
        let mut sealed = seal(&mine);
        assert_eq!(
            sealed.open_with(stand_in, "pod"),
            Err(SealingError::OtherKey)
        );
        let stand_in = key();
        sealed.recipient = stand_in.public_key().to_owned();
        assert!(sealed.open_with(stand_in, "pod").is_err());
        let mut changed = seal(&mine);
        changed.data.replace_range(
            ..1,
            if changed.data.starts_with('A') {
                "B"
            } else {
                "A"
            },
        );
        assert!(changed.open_with(mine, "pod").is_err());
    }

    #[test]
    fn malformed_recipient_is_rejected() {
        for text in ["", "%", "AAAA"] {
            let sealed = SealedInit::seal(&init(), text, "pod");
            assert_eq!(sealed, Err(SealingError::Malformed), "{text}");
        }
    }

    impl SealedInit {
        fn open_with(&self, key: SealingKey, pod_uid: &str) -> Result<Init, SealingError> {
            key.open(self, pod_uid)
        }
    }
}
