//! Pull of an image: manifest, configuration, layers, and the record that makes it complete.
//!
//! Downloads run side by side, layers are unpacked one after the other, bottom first. Two pulls of
//! one image share the work, in one process as one task, in several by a lock for each layer.

mod install;
mod shared;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};

pub use self::shared::Pull;

use self::install::Install;
use self::shared::SharedPulls;
use crate::config::MAX_CONFIG;
use crate::install::InstallError;
use crate::manifest::{self, Document, ManifestError, Platform};
use crate::store::{Image, ImageStore, StoreError};
use crate::unpack::{Limits, UnpackError};
use crate::{Credentials, Digest, ImageConfig, ImageManifest, Progress, Reference};
use crate::{Registry, RegistryError};

/// Downloads at a time, of all pulls.
const MAX_DOWNLOADS: usize = 6;

/// An image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(
        "no space left in the image store {path}: {free} MB are free; `images prune` removes unused \
         images"
    )]
    Full { path: PathBuf, free: u64 },
    #[error("pull was interrupted")]
    Interrupted,
}

impl PullError {
    /// True if the disk of the store has no space left.
    fn is_lack_of_space(&self) -> bool {
        let (Self::Registry(RegistryError::Disk { source, .. })
        | Self::Install(
            InstallError::Unpack(_, UnpackError::Write(_, source))
            | InstallError::Store(StoreError::Io { source, .. }),
        )) = self
        else {
            return false;
        };
        matches!(
            source.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        )
    }
}

impl From<StoreError> for PullError {
    fn from(error: StoreError) -> Self {
        InstallError::from(error).into()
    }
}

impl From<ManifestError> for PullError {
    fn from(error: ManifestError) -> Self {
        InstallError::from(error).into()
    }
}

/// Pulls images into a store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Puller(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: ImageStore,
    registry: Registry,
    limits: Limits,
    downloads: Semaphore,
    running: SharedPulls,
}

impl Puller {
    pub fn new(store: ImageStore, registry: Registry, limits: Limits) -> Self {
        Self(Arc::new(Inner {
            store,
            registry,
            limits,
            downloads: Semaphore::new(MAX_DOWNLOADS),
            running: SharedPulls::default(),
        }))
    }

    pub fn store(&self) -> &ImageStore {
        &self.0.store
    }

    /// Starts a pull, or joins the same one of another caller. It ends early when all callers have
    /// dropped their handles.
    pub fn start(&self, reference: &Reference, credentials: &Credentials) -> Pull {
        let key = (reference.whole(), credentials.fingerprint());
        self.0.running.join(key, |progress| {
            let (inner, reference) = (Arc::clone(&self.0), reference.clone());
            let credentials = credentials.clone();
            async move { inner.pull(&reference, &credentials, progress).await }
        })
    }

    /// Pulls an image; the complete image of the store.
    pub async fn pull(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<Arc<Image>, Arc<PullError>> {
        self.start(reference, credentials).finish().await
    }
}

impl Inner {
    async fn pull(
        &self,
        reference: &Reference,
        credentials: &Credentials,
        progress: watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        let lock = blocking(&self.store, ImageStore::lock_for_adding).await??;
        let install = Install {
            inner: self,
            reference,
            credentials,
            progress,
        };
        let pulled = self.pull_with(&install).await;
        drop(lock);
        // Nothing of a refused image stays. Others that pull now sweep later.
        match pulled {
            Err(error) if error.is_lack_of_space() => {
                blocking(&self.store, ImageStore::try_sweep_parts).await??;
                let (path, free) = self.store.free_space()?;
                let free = free / 1_000_000;
                Err(PullError::Full { path, free })
            }
            Err(error) if !matches!(error, PullError::Registry(_)) => {
                let _ = blocking(&self.store, ImageStore::try_sweep).await;
                Err(error)
            }
            pulled => pulled,
        }
    }

    async fn pull_with(&self, install: &Install<'_>) -> Result<Image, PullError> {
        let (reference, credentials) = (install.reference, install.credentials);
        let top = self.registry.resolve(reference, credentials).await?;
        let (manifest, digest) = self.manifest(reference, credentials, &top).await?;
        if let Some(image) = self.store.image(&digest)? {
            self.store.set_tag(reference, digest)?;
            return Ok(image);
        }
        let config = &manifest.config;
        let blob = self
            .registry
            .blob(reference, config, credentials, MAX_CONFIG);
        let blob = blob.await?;
        self.store.add_blob(&config.digest, &blob)?;
        let config = ImageConfig::parse(&blob).map_err(InstallError::Config)?;
        let record = install.run(digest, &manifest, &config).await?;
        self.store.add(&record)?;
        self.store.set_tag(reference, digest)?;
        self.store.image(&digest)?.ok_or(PullError::Interrupted)
    }

    /// The manifest for this machine, and its digest. The store keeps it as a blob.
    async fn manifest(
        &self,
        reference: &Reference,
        credentials: &Credentials,
        digest: &Digest,
    ) -> Result<(ImageManifest, Digest), PullError> {
        let (bytes, document) = self.document(reference, credentials, digest).await?;
        let (digest, bytes, document) = match document {
            Document::Manifest(_) => (*digest, bytes, document),
            Document::Index(index) => {
                let own = index.select(&Platform::here())?.digest;
                let (bytes, document) = self.document(reference, credentials, &own).await?;
                (own, bytes, document)
            }
        };
        let Document::Manifest(manifest) = document else {
            return Err(ManifestError::MediaType("index in an index".into()).into());
        };
        self.store.add_blob(&digest, &bytes)?;
        Ok((manifest, digest))
    }

    /// A manifest or index by its digest, so that a tag that moves meanwhile mixes no two images.
    async fn document(
        &self,
        reference: &Reference,
        credentials: &Credentials,
        digest: &Digest,
    ) -> Result<(Bytes, Document), PullError> {
        let pinned = reference.clone_with_digest(digest.to_string());
        let (descriptor, bytes) = self.registry.manifest(&pinned, credentials).await?;
        let document = manifest::parse(&bytes, Some(&descriptor.media_type))?;
        Ok((bytes, document))
    }
}

/// Runs a step that may wait for a lock or a disk.
async fn blocking<R: Send + 'static>(
    store: &ImageStore,
    step: impl FnOnce(&ImageStore) -> R + Send + 'static,
) -> Result<R, PullError> {
    let store = store.clone();
    let done = tokio::task::spawn_blocking(move || step(&store)).await;
    done.map_err(|_| PullError::Interrupted)
}

#[cfg(test)]
mod tests;
