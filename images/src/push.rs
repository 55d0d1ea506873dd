//! Images of a store, uploaded to a registry.

use std::io;

use bytes::Bytes;

use crate::manifest::{self, Document, ManifestError};
use crate::registry::Content;
use crate::store::{Image, ImageStore};
use crate::{Credentials, Descriptor, Digest, Reference, Registry, RegistryError};

/// An image was not uploaded.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error("image store: {0}")]
    Store(#[from] io::Error),
    #[error("manifest in the image store: {0}")]
    Manifest(#[from] ManifestError),
    #[error("manifest in the image store is an index")]
    Index,
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Uploads what the repository of `target` does not have of an image, and then names it `target`.
/// `progress` gets the bytes of each blob that is there. Returns the digest of the manifest.
pub async fn push(
    store: &ImageStore,
    image: &Image,
    target: &Reference,
    registry: &Registry,
    credentials: &Credentials,
    progress: impl Fn(u64),
) -> Result<Digest, PushError> {
    let bytes = Bytes::from(std::fs::read(store.blob(&image.digest))?);
    let Document::Manifest(manifest) = manifest::parse(&bytes, None)? else {
        return Err(PushError::Index);
    };
    for blob in manifest.layers.iter().chain([&manifest.config]) {
        let path = store.blob(&blob.digest);
        // The size in a manifest is what a registry has stated.
        let size = path.metadata()?.len();
        let blob = Descriptor {
            size,
            ..blob.clone()
        };
        let content = Content::File(&path);
        registry
            .push_blob(target, &blob, content, credentials)
            .await?;
        progress(size);
    }
    let media_type = manifest::media_type(&bytes);
    let pushed = registry.push_manifest(target, &media_type, &bytes, credentials);
    Ok(pushed.await?)
}
