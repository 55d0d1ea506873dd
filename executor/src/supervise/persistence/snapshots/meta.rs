//! File `snapshot.json`, present once a snapshot is complete.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::persistence::PersistenceLevel;
use crds::contract::sealing;
use ring::aead::LessSafeKey;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::store::{Store, read_file};

/// Version of the layout. A supervisor reads snapshots up to its own.
const VERSION: u32 = 1;
const NAME: &str = "snapshot.json";
const TEMPORARY: &str = "snapshot.json.new";
const MAX_BYTES: u64 = 64 << 10;
const CONTEXT: &[u8] = b"sandbox-snapshot-session-key-v1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotMeta {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) level: PersistenceLevel,
    /// Image of the changed files, by digest.
    #[serde(default)]
    pub(super) image: String,
    /// Session key of the processes, encrypted: the server among them gets another one. Absent if no
    /// process checks one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session_key: Option<String>,
}

impl SnapshotMeta {
    pub(super) fn new(level: PersistenceLevel, image: &str) -> Self {
        Self {
            version: VERSION,
            level,
            image: image.to_owned(),
            session_key: None,
        }
    }

    pub(super) fn seal_session_key(&mut self, secret: &str, key: &str) -> Result<(), StateError> {
        let sealed = sealing::seal_with_nonce(&aead(secret)?, CONTEXT, key.as_bytes());
        let sealed = sealed.map_err(|_| StateError::Key)?;
        self.session_key = Some(URL_SAFE_NO_PAD.encode(sealed));
        Ok(())
    }

    /// Session key of the processes; `None` if they have none.
    pub(super) fn open_session_key(&self, secret: &str) -> Result<Option<String>, StateError> {
        let Some(sealed) = &self.session_key else {
            return Ok(None);
        };
        let sealed = URL_SAFE_NO_PAD
            .decode(sealed)
            .map_err(|_| StateError::Key)?;
        let opened = sealing::open_with_nonce(&aead(secret)?, CONTEXT, &sealed);
        let opened = opened.map_err(|_| StateError::Key)?;
        String::from_utf8(opened)
            .map(Some)
            .map_err(|_| StateError::Key)
    }

    /// Reads the file; `None` if the snapshot is not complete.
    pub(super) fn read(snapshot: &Store) -> Result<Option<Self>, StateError> {
        let content = read_file(snapshot.descriptor(), NAME, MAX_BYTES);
        let Some(content) = content.map_err(StateError::io("read the snapshot"))? else {
            return Ok(None);
        };
        let meta: Self = serde_json::from_slice(&content)
            .map_err(|_| StateError::Damaged("snapshot.json is not valid"))?;
        if meta.version > VERSION {
            return Err(StateError::Version(meta.version));
        }
        Ok(Some(meta))
    }

    /// Makes a snapshot complete.
    pub(super) fn write(&self, snapshot: &Store) -> Result<(), StateError> {
        let failed = StateError::io::<std::io::Error>;
        let content = serde_json::to_vec(self).map_err(|_| StateError::Damaged("its meta data"))?;
        let written = snapshot
            .create(TEMPORARY)
            .and_then(|mut file| file.write_all(&content).map(|()| file))
            .and_then(|file| snapshot.commit(&file, TEMPORARY, NAME));
        written.map_err(failed("complete the snapshot"))
    }
}

fn aead(secret: &str) -> Result<LessSafeKey, StateError> {
    let secret = URL_SAFE_NO_PAD
        .decode(secret)
        .map_err(|_| StateError::Key)?;
    let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), CONTEXT);
    let mut key = [0; 32];
    key.copy_from_slice(derived.as_ref());
    sealing::aead(&key).map_err(|_| StateError::Key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_key_opens_with_the_key_of_the_snapshot_only() {
        let [secret, other] = [[1; 32], [2; 32]].map(|key| URL_SAFE_NO_PAD.encode(key));
        let mut meta = SnapshotMeta::new(PersistenceLevel::Memory, "sha256:1");
        assert_eq!(meta.open_session_key(&secret).unwrap(), None);
        meta.seal_session_key(&secret, "hunter2").unwrap();
        assert!(!serde_json::to_string(&meta).unwrap().contains("hunter2"));
        assert_eq!(meta.open_session_key(&secret).unwrap().unwrap(), "hunter2");
        assert!(meta.open_session_key(&other).is_err());
    }
}
