//! Size and time of an image in a registry.

use bytes::Bytes;

use crate::config::MAX_CONFIG;
use crate::manifest::{self, Document, ManifestError, Platform};
use crate::{Credentials, Digest, ImageConfig, ImageManifest, Reference, Registry, RegistryError};

/// Description of an image by its registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Digest of the manifest or index.
    pub digest: Digest,
    /// Bytes of configuration and layers as they are stored, for one platform.
    pub size: u64,
    /// Time of the configuration; empty if it has none.
    pub created: String,
}

#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("image configuration is not valid: {0}")]
    Config(serde_json::Error),
}

/// Reads manifest and configuration of an image; those of this machine's platform if there are
/// several, or of the first one.
pub async fn inspect(
    registry: &Registry,
    reference: &Reference,
    credentials: &Credentials,
) -> Result<Inspection, InspectError> {
    let (descriptor, bytes) = registry.manifest(reference, credentials).await?;
    let manifest = match manifest::parse(&bytes, Some(&descriptor.media_type))? {
        Document::Manifest(manifest) => manifest,
        Document::Index(index) => {
            let selected = index.select(&Platform::here());
            let entry = match (selected, index.manifests.first()) {
                (Err(_), Some(first)) => first,
                (selected, _) => selected?,
            };
            let part = reference.clone_with_digest(entry.digest.to_string());
            one_manifest(registry, &part, credentials).await?.0
        }
    };
    let blob = registry.blob(reference, &manifest.config, credentials, MAX_CONFIG);
    let config = ImageConfig::parse(&blob.await?).map_err(InspectError::Config)?;
    Ok(Inspection {
        digest: descriptor.digest,
        size: stored_bytes(&manifest),
        created: config.created,
    })
}

/// Reads a manifest that is no index.
pub(crate) async fn one_manifest(
    registry: &Registry,
    reference: &Reference,
    credentials: &Credentials,
) -> Result<(ImageManifest, Bytes), InspectError> {
    let (descriptor, bytes) = registry.manifest(reference, credentials).await?;
    match manifest::parse(&bytes, Some(&descriptor.media_type))? {
        Document::Manifest(manifest) => Ok((manifest, bytes)),
        Document::Index(_) => Err(ManifestError::MediaType("index in an index".into()).into()),
    }
}

/// Bytes of configuration and layers in a registry.
pub(crate) fn stored_bytes(manifest: &ImageManifest) -> u64 {
    let blobs = manifest.layers.iter().chain([&manifest.config]);
    blobs.fold(0, |sum, blob| sum.saturating_add(blob.size))
}
