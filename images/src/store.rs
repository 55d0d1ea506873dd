//! Content store: blobs by digest, layers unpacked by chain id, and the images made of them.
//!
//! ```text
//! blobs/HEX           manifests, configurations and compressed layers
//! layers/CHAIN        unpacked layers, read-only directories of overlay mounts
//! layers/CHAIN.json   what is known of a layer when its files are on disk
//! images/HEX.json     one complete image each, with all its blobs and layers
//! images/HEX.lock     shared lock while the image is in use
//! tags/HEX.json       reference -> image; the time of change is that of the last use
//! staging/            unfinished work, removed by the next sweep
//! ```
//! Everything gets its name by a rename when it is complete, so that a crash leaves no part of it.
//! Several processes may use one store: pulls hold a shared lock, a sweep an exclusive one.

mod image;
mod layer;
mod listing;
mod lock;
mod record;
mod sweep;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::image::Image;
pub use self::listing::StoredImage;
pub use self::sweep::Freed;

pub(crate) use self::layer::LayerLock;
pub(crate) use self::record::{ImageRecord, TagRecord};

use self::lock::Lock;
use crate::{Digest, Reference};

const DIRECTORIES: [&str; 5] = ["blobs", "layers", "images", "tags", "staging"];

/// Handle of a store; cheap to clone.
#[derive(Debug, Clone)]
pub struct ImageStore {
    root: Arc<Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("image store {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("image store {path}: {source}")]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
}

impl StoreError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

impl ImageStore {
    /// Opens the store in the directory `root`, which it creates for its owner only.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let failed = StoreError::io;
        let mut private = fs::DirBuilder::new();
        let private = private.recursive(true).mode(0o700);
        for name in DIRECTORIES {
            let path = root.join(name);
            private.create(&path).map_err(failed(&path))?;
        }
        let root = root.canonicalize().map_err(failed(root))?;
        Ok(Self { root: root.into() })
    }

    /// Directory that contains the unpacked layers.
    pub fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    pub(crate) fn layer(&self, chain_id: &Digest) -> PathBuf {
        self.layers().join(chain_id.short())
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.hex())
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    fn record(&self, manifest: &Digest) -> PathBuf {
        let name = format!("{}.json", manifest.hex());
        self.root.join("images").join(name)
    }

    fn image_lock(&self, manifest: &Digest) -> PathBuf {
        self.record(manifest).with_extension("lock")
    }

    fn tag(&self, reference: &Reference) -> PathBuf {
        let name = Digest::of(reference.whole().as_bytes()).hex();
        self.root.join("tags").join(format!("{name}.json"))
    }

    /// Lock of everything that adds to the store. A sweep waits for its release.
    pub(crate) fn lock_for_adding(&self) -> Result<Lock, StoreError> {
        Lock::shared(&self.root.join("lock"))
    }

    /// The image of `reference`, if it is complete. Its layers stay while the result lives.
    pub fn find(&self, reference: &Reference) -> Result<Option<Image>, StoreError> {
        let path = self.tag(reference);
        let Some(tag) = TagRecord::read(&path)? else {
            return Ok(None);
        };
        record::touch(&path);
        self.image(&tag.manifest)
    }

    /// The image with this manifest, if it is complete.
    pub(crate) fn image(&self, manifest: &Digest) -> Result<Option<Image>, StoreError> {
        let path = self.record(manifest);
        if !path.exists() {
            return Ok(None);
        }
        let lock = Lock::shared(&self.image_lock(manifest))?;
        let Some(record) = ImageRecord::read(&path)? else {
            return Ok(None);
        };
        Image::open(self, &record, lock).map(Some)
    }

    /// Adds a small blob, which the caller has checked.
    pub(crate) fn add_blob(&self, digest: &Digest, content: &[u8]) -> Result<(), StoreError> {
        record::write_bytes(&self.blob(digest), &self.staging(), content)
    }

    /// Adds a complete image. Its blobs and layers are in the store already.
    pub(crate) fn add(&self, record: &ImageRecord) -> Result<(), StoreError> {
        record::write(&self.record(&record.manifest), &self.staging(), record)
    }

    /// Lets `reference` name an image of the store.
    pub(crate) fn set_tag(
        &self,
        reference: &Reference,
        manifest: Digest,
    ) -> Result<(), StoreError> {
        let tag = TagRecord {
            reference: reference.whole(),
            manifest,
        };
        record::write(&self.tag(reference), &self.staging(), &tag)
    }

    /// Removes the name; [`Self::sweep`] frees the space. False if there is no such name.
    pub fn remove(&self, reference: &Reference) -> Result<bool, StoreError> {
        let path = self.tag(reference);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io(&path)(error)),
        }
    }
}

#[cfg(test)]
mod tests;
