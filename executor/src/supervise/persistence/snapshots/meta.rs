//! File `snapshot` in the directory of a snapshot, present once it is complete. It is encrypted, so that
//! nothing of it can be changed unnoticed.

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
const NAME: &str = "snapshot";
const TEMPORARY: &str = "snapshot.new";
const MAX_BYTES: u64 = 64 << 10;
const CONTEXT: &[u8] = b"sandbox-snapshot-v1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotMeta {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) level: PersistenceLevel,
    /// Image of the changed files, by digest.
    #[serde(default)]
    pub(super) image: String,
    /// Session key that the server among the processes checks: it gets another one.
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

    /// Reads the file; `None` if the snapshot is not complete.
    pub(super) fn read(
        snapshot: &Store,
        id: &str,
        secret: &str,
    ) -> Result<Option<Self>, StateError> {
        let sealed = read_file(snapshot.descriptor(), NAME, MAX_BYTES);
        let Some(sealed) = sealed.map_err(StateError::io("read the snapshot"))? else {
            return Ok(None);
        };
        let content = sealing::open_with_nonce(&aead(secret)?, &bound(id), &sealed);
        let content = content.map_err(|_| StateError::Damaged("it cannot be decrypted"))?;
        let meta: Self = serde_json::from_slice(&content)
            .map_err(|_| StateError::Damaged("its description is not valid"))?;
        if meta.version > VERSION {
            return Err(StateError::Version(meta.version));
        }
        Ok(Some(meta))
    }

    /// Makes a snapshot complete.
    pub(super) fn write(&self, snapshot: &Store, id: &str, secret: &str) -> Result<(), StateError> {
        let failed = StateError::io::<std::io::Error>;
        let content = serde_json::to_vec(self).map_err(StateError::io("describe the snapshot"))?;
        let sealed = sealing::seal_with_nonce(&aead(secret)?, &bound(id), &content);
        let sealed = sealed.map_err(|_| StateError::Key)?;
        let written = snapshot
            .create(TEMPORARY)
            .and_then(|mut file| file.write_all(&sealed).map(|()| file))
            .and_then(|file| snapshot.commit(&file, TEMPORARY, NAME));
        written.map_err(failed("complete the snapshot"))
    }
}

fn bound(id: &str) -> Vec<u8> {
    [CONTEXT, b"\n", id.as_bytes()].concat()
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
    use std::fs;

    use super::*;

    #[test]
    fn description_opens_with_its_key_and_id_only() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = Store::of(fs::File::open(directory.path()).unwrap().into());
        let [secret, other] = [[1; 32], [2; 32]].map(|key| URL_SAFE_NO_PAD.encode(key));
        assert_eq!(SnapshotMeta::read(&snapshot, "id", &secret).unwrap(), None);
        let mut meta = SnapshotMeta::new(PersistenceLevel::Memory, "sha256:1");
        meta.session_key = Some("hunter2".into());
        meta.write(&snapshot, "id", &secret).unwrap();
        let path = directory.path().join(NAME);
        let sealed = fs::read(&path).unwrap();
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        let read = |id, secret| SnapshotMeta::read(&snapshot, id, secret);
        assert_eq!(read("id", &secret).unwrap(), Some(meta));
        assert!(read("other", &secret).is_err() && read("id", &other).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(read("id", &secret).is_err(), "{at}");
        }
    }

    #[test]
    fn snapshot_of_a_newer_version_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = Store::of(fs::File::open(directory.path()).unwrap().into());
        let secret = URL_SAFE_NO_PAD.encode([1; 32]);
        let newer = SnapshotMeta {
            version: VERSION + 1,
            ..SnapshotMeta::new(PersistenceLevel::Root, "sha256:1")
        };
        newer.write(&snapshot, "id", &secret).unwrap();
        let error = SnapshotMeta::read(&snapshot, "id", &secret).unwrap_err();
        assert!(matches!(error, StateError::Version(2)), "{error}");
    }
}
