//! Records of the store: small JSON files that replace each other in one step.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::{Descriptor, Digest};

/// Complete image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    pub(crate) manifest: Digest,
    pub(crate) config: Digest,
    /// Compressed layers, bottom first.
    pub(crate) layers: Vec<Descriptor>,
    /// Chain ids of the unpacked layers, bottom first.
    pub(crate) chain_ids: Vec<Digest>,
    /// Bytes of the unpacked layers' files.
    pub(crate) unpacked_bytes: u64,
}

/// Name of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TagRecord {
    pub(crate) reference: String,
    pub(crate) manifest: Digest,
}

impl ImageRecord {
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        read(path)
    }

    /// Blobs that belong to the image.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = Digest> {
        let layers = self.layers.iter().map(|layer| layer.digest);
        [self.manifest, self.config].into_iter().chain(layers)
    }
}

impl TagRecord {
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, StoreError> {
        read(path)
    }
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io(path)(error)),
    };
    let parsed = serde_json::from_slice(&text);
    parsed.map(Some).map_err(|source| StoreError::Json {
        path: path.to_owned(),
        source,
    })
}

/// Replaces the record at `path`.
pub(super) fn write<T: Serialize>(
    path: &Path,
    staging: &Path,
    record: &T,
) -> Result<(), StoreError> {
    let text = serde_json::to_vec(record).map_err(|source| StoreError::Json {
        path: path.to_owned(),
        source,
    })?;
    write_bytes(path, staging, &text)
}

/// Replaces the file at `path`. Its content is on disk before it has its name.
pub(super) fn write_bytes(path: &Path, staging: &Path, content: &[u8]) -> Result<(), StoreError> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(staging)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(StoreError::io(path))
}

/// Notes a use. Failures only make the image look older than it is.
pub(super) fn touch(path: &Path) {
    let opened = File::options().write(true).open(path);
    let _ = opened.and_then(|file| file.set_modified(SystemTime::now()));
}
