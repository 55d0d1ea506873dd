//! Contents of a store, for people and for its size limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::lock::Lock;
use super::{ImageRecord, ImageStore, StoreError, TagRecord};
use crate::{Digest, ImageConfig};

/// Named image of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    pub reference: String,
    /// Digest of the manifest.
    pub digest: Digest,
    /// Bytes of the files of its unpacked layers, which it may share with others.
    pub bytes: u64,
    /// `created` of the configuration, RFC 3339; may be empty.
    pub created: String,
    pub last_used: SystemTime,
    /// True while a process uses it.
    pub in_use: bool,
}

impl ImageStore {
    /// Named images, by name.
    pub fn list(&self) -> Result<Vec<StoredImage>, StoreError> {
        let mut images = Vec::new();
        for (path, tag) in self.tags()? {
            // Another process may remove it meanwhile.
            let Some(record) = ImageRecord::read(&self.record(&tag.manifest))? else {
                continue;
            };
            let config = fs::read(self.blob(&record.config)).unwrap_or_default();
            let config = ImageConfig::parse(&config).unwrap_or_default();
            let modified = fs::metadata(&path).and_then(|metadata| metadata.modified());
            images.push(StoredImage {
                in_use: Lock::try_exclusive(&self.image_lock(&tag.manifest))?.is_none(),
                reference: tag.reference,
                digest: tag.manifest,
                bytes: record.unpacked_bytes,
                created: config.created,
                last_used: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            });
        }
        images.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(images)
    }

    pub(super) fn tags(&self) -> Result<Vec<(PathBuf, TagRecord)>, StoreError> {
        let mut tags = Vec::new();
        for path in files(&self.root.join("tags"))? {
            if let Some(tag) = TagRecord::read(&path)? {
                tags.push((path, tag));
            }
        }
        Ok(tags)
    }
}

/// Entries of a directory.
pub(super) fn files(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = fs::read_dir(directory).map_err(StoreError::io(directory))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Result<_, _> = paths.collect();
    paths.map_err(StoreError::io(directory))
}
