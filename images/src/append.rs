//! One more layer on an image in a registry, without its layers: only manifests and configurations
//! are read and written. They are edited as JSON, so that fields unknown here stay.

mod carry;
mod edit;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use self::edit::{Edit, EditError};
use crate::config::MAX_CONFIG;
use crate::inspect::{InspectError, one_manifest};
use crate::manifest::{self, Document, MAX_LAYERS, ManifestError, Platform};
use crate::{
    Content, Credentials, Descriptor, Digest, ImageConfig, Layer, Reference, Registry,
    RegistryError,
};

/// Platforms of an image.
const MAX_PLATFORMS: usize = 16;

/// A layer cannot be appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("image configuration is not valid: {0}")]
    Config(serde_json::Error),
    #[error("image cannot be edited: {0}")]
    Edit(#[from] EditError),
    #[error("image has {0} platforms, the limit is {MAX_PLATFORMS}")]
    Platforms(usize),
    #[error("{0} is not in the repository of the image")]
    Repository(String),
}

impl From<InspectError> for AppendError {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Registry(error) => error.into(),
            InspectError::Manifest(error) => error.into(),
            InspectError::Config(error) => Self::Config(error),
        }
    }
}

/// An image in a registry.
#[derive(Debug)]
pub struct Parent {
    name: String,
    /// With the digest, so that it stays what it was.
    reference: Reference,
    digest: Digest,
    index: Option<Bytes>,
    variants: Vec<Variant>,
}

/// The image of one platform.
#[derive(Debug)]
struct Variant {
    digest: Digest,
    manifest: Bytes,
    config: Bytes,
    labels: BTreeMap<String, String>,
}

/// A layer to append: its compressed archive is in `file`, and the image gets `labels` with it.
#[derive(Debug, Clone, Copy)]
pub struct Addition<'a> {
    pub layer: &'a Layer,
    pub file: &'a Path,
    pub labels: &'a BTreeMap<String, String>,
}

/// An image that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Digest of the manifest or index.
    pub digest: Digest,
    /// Bytes of configuration and layers in the registry, of the first platform.
    pub size: u64,
}

impl Parent {
    /// Reads the documents of an image, for all its platforms.
    pub async fn load(
        registry: &Registry,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<Self, AppendError> {
        Self::load_some(registry, reference, credentials, None).await
    }

    /// Reads the documents of an image for one platform: a layer with programs is not for the others.
    pub async fn load_platform(
        registry: &Registry,
        reference: &Reference,
        credentials: &Credentials,
        platform: &Platform,
    ) -> Result<Self, AppendError> {
        Self::load_some(registry, reference, credentials, Some(platform)).await
    }

    async fn load_some(
        registry: &Registry,
        reference: &Reference,
        credentials: &Credentials,
        platform: Option<&Platform>,
    ) -> Result<Self, AppendError> {
        let (descriptor, bytes) = registry.manifest(reference, credentials).await?;
        let digest = descriptor.digest;
        let name = reference.whole();
        let reference = reference.clone_with_digest(digest.to_string());
        let document = manifest::parse(&bytes, Some(&descriptor.media_type))?;
        let (index, digests) = match (document, platform) {
            (Document::Manifest(_), _) => (None, vec![digest]),
            (Document::Index(index), Some(platform)) => {
                (None, vec![index.select(platform)?.digest])
            }
            (Document::Index(index), None) => {
                let images = index.manifests.iter().filter(|entry| entry.is_image());
                (Some(bytes), images.map(|entry| entry.digest).collect())
            }
        };
        if digests.is_empty() || digests.len() > MAX_PLATFORMS {
            return Err(AppendError::Platforms(digests.len()));
        }
        let mut variants = Vec::new();
        for digest in digests {
            let part = reference.clone_with_digest(digest.to_string());
            variants.push(Variant::load(registry, &part, digest, credentials).await?);
        }
        Ok(Self {
            name,
            reference,
            digest,
            index,
            variants,
        })
    }

    /// Value of a label of the image; of the first platform if it has several.
    pub fn label(&self, name: &str) -> Option<&str> {
        let labels = &self.variants.first()?.labels;
        labels.get(name).map(String::as_str)
    }

    /// Uploads the image with one more layer, and names it by all `targets`, which are tags in the
    /// repository of the image.
    pub async fn append(
        &self,
        addition: Addition<'_>,
        targets: &[Reference],
        registry: &Registry,
        credentials: &Credentials,
    ) -> Result<Appended, AppendError> {
        if let Some(foreign) = targets.iter().find(|target| !self.is_beside(target)) {
            return Err(AppendError::Repository(foreign.whole()));
        }
        let edit = Edit {
            layer: addition.layer,
            labels: addition.labels,
            base_name: &self.name,
            base_digest: self.digest,
        };
        let edited = self.variants.iter().map(|variant| {
            let edited = edit.image(&variant.manifest, &variant.config);
            edited.map(|edited| (variant.digest, edited))
        });
        let edited: Vec<_> = edited.collect::<Result<_, _>>()?;
        let to = &self.reference;
        let push = async |bytes: &Bytes| {
            let blob = Descriptor::blob(Digest::of(bytes), bytes.len() as u64);
            let content = Content::Bytes(bytes);
            registry.push_blob(to, &blob, content, credentials).await
        };
        let layer = Descriptor::blob(addition.layer.digest, addition.layer.size);
        let content = Content::File(addition.file);
        registry.push_blob(to, &layer, content, credentials).await?;
        for (_, image) in &edited {
            push(&image.config).await?;
        }
        let document = match &self.index {
            None => edited[0].1.manifest.clone(),
            Some(index) => {
                for (_, image) in &edited {
                    let (document, digest) = (&image.manifest, Digest::of(&image.manifest));
                    let part = to.clone_with_digest(digest.to_string());
                    let media_type = manifest::media_type(document);
                    let pushed = registry.push_manifest(&part, &media_type, document, credentials);
                    pushed.await?;
                }
                edit::index(index, &edited)?
            }
        };
        let media_type = manifest::media_type(&document);
        for target in targets {
            let pushed = registry.push_manifest(target, &media_type, &document, credentials);
            pushed.await?;
        }
        Ok(Appended {
            digest: Digest::of(&document),
            size: edited[0].1.size,
        })
    }

    fn is_beside(&self, other: &Reference) -> bool {
        let own = &self.reference;
        (own.registry(), own.repository()) == (other.registry(), other.repository())
    }
}

impl Variant {
    async fn load(
        registry: &Registry,
        reference: &Reference,
        digest: Digest,
        credentials: &Credentials,
    ) -> Result<Self, AppendError> {
        let (manifest, bytes) = one_manifest(registry, reference, credentials).await?;
        if manifest.layers.len() >= MAX_LAYERS {
            return Err(ManifestError::Layers(manifest.layers.len() + 1).into());
        }
        let config = registry.blob(reference, &manifest.config, credentials, MAX_CONFIG);
        let config = config.await?;
        let parsed = ImageConfig::parse(&config).map_err(AppendError::Config)?;
        let (layers, diff_ids) = (manifest.layers.len(), parsed.rootfs.diff_ids.len());
        if layers != diff_ids {
            return Err(EditError::Layers { layers, diff_ids }.into());
        }
        Ok(Self {
            digest,
            manifest: bytes,
            config,
            labels: parsed.config.labels,
        })
    }
}

#[cfg(test)]
mod tests;
