//! Images in files: archives of `docker save`, and OCI layouts as a directory or an archive.

mod files;
mod save;

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

pub use self::save::save;

use self::files::Files;
use crate::install::{InstallError, layers, record, unpack_layer};
use crate::manifest::{self, DOCKER_MANIFEST, Document, ManifestError, Platform};
use crate::store::{ImageStore, StoreError};
use crate::unpack::Limits;
use crate::{Descriptor, Digest, ImageConfig, ImageManifest, Reference};

/// Bytes of a document.
const MAX_DOCUMENT: u64 = 4 << 20;
/// Images of one file.
const MAX_IMAGES: usize = 1000;

const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// Annotations of an image's name: whole, and in parts or only the tag.
const IMAGE_NAME: &str = "io.containerd.image.name";
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An image cannot be loaded from a file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("neither an archive of `docker save` nor an OCI layout")]
    Format,
    #[error("{0} is missing in the archive")]
    Missing(String),
    #[error("{file} is not valid: {source}")]
    Json {
        file: String,
        source: serde_json::Error,
    },
    #[error("{file} has digest {found}")]
    Digest { file: String, found: Digest },
    #[error("archive exceeds the limit of {0}")]
    TooLarge(&'static str),
    #[error("{0:?} is not a name of an image")]
    Name(String),
    #[error("archive names no image, and no name is given")]
    NoName,
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        InstallError::from(error).into()
    }
}

impl From<ManifestError> for LoadError {
    fn from(error: ManifestError) -> Self {
        InstallError::from(error).into()
    }
}

/// One element of `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Loads the images of a file, or of a directory with an OCI layout, and returns their names.
/// `name` is used for a single image that has none.
pub fn load(
    store: &ImageStore,
    path: &Path,
    name: Option<&Reference>,
    limits: &Limits,
) -> Result<Vec<Reference>, LoadError> {
    let adding = store.lock_for_adding()?;
    let loaded = load_locked(store, path, name, limits);
    drop(adding);
    if loaded.is_err() {
        // Nothing of a refused archive stays.
        store.try_sweep()?;
    }
    loaded
}

fn load_locked(
    store: &ImageStore,
    path: &Path,
    name: Option<&Reference>,
    limits: &Limits,
) -> Result<Vec<Reference>, LoadError> {
    let files = if path.is_dir() {
        Files::of_directory(path)
    } else {
        Files::of_archive(File::open(path)?, &store.staging(), limits)?
    };
    let loaded = Loader {
        store,
        files: &files,
        limits,
    };
    let images = loaded.images()?;
    let is_single = images.len() == 1;
    let mut names = Vec::new();
    for (manifest, own) in images {
        let own = match (own.is_empty(), name) {
            (true, Some(name)) if is_single => vec![name.clone()],
            (true, _) => return Err(LoadError::NoName),
            _ => own,
        };
        loaded.install(manifest)?;
        for name in own {
            store.set_tag(&name, manifest)?;
            names.push(name);
        }
    }
    Ok(names)
}

struct Loader<'a> {
    store: &'a ImageStore,
    files: &'a Files,
    limits: &'a Limits,
}

impl Loader<'_> {
    /// Digests of the manifests for this machine, which the store has then, and their names.
    fn images(&self) -> Result<Vec<(Digest, Vec<Reference>)>, LoadError> {
        let images = if self.files.has("index.json") {
            let index: manifest::Index = self.json("index.json")?;
            let named = index.manifests.iter();
            let images: Result<Vec<_>, _> = named.map(|entry| self.layout_image(entry)).collect();
            images?
        } else if self.files.has("manifest.json") {
            let images: Vec<DockerImage> = self.json("manifest.json")?;
            let images: Result<Vec<_>, _> = images
                .iter()
                .map(|image| self.docker_image(image))
                .collect();
            images?
        } else {
            return Err(LoadError::Format);
        };
        if images.len() > MAX_IMAGES {
            return Err(LoadError::TooLarge("1000 images"));
        }
        Ok(images)
    }

    fn layout_image(&self, entry: &Descriptor) -> Result<(Digest, Vec<Reference>), LoadError> {
        let mut digest = entry.digest;
        let mut bytes = self.blob(&digest)?;
        if let Document::Index(index) = manifest::parse(&bytes, Some(&entry.media_type))? {
            digest = index.select(&Platform::here())?.digest;
            bytes = self.blob(&digest)?;
        }
        self.store.add_blob(&digest, &bytes)?;
        let name = |key: &str| entry.annotations.get(key);
        // The second annotation is a tag alone in most layouts, which names no image.
        let part = name(REF_NAME).filter(|name| name.contains([':', '/']));
        let names = name(IMAGE_NAME).or(part).map(|name| parse(name));
        Ok((digest, names.into_iter().collect::<Result<_, _>>()?))
    }

    /// Makes the manifest that an archive of `docker save` lacks.
    fn docker_image(&self, image: &DockerImage) -> Result<(Digest, Vec<Reference>), LoadError> {
        let config = self.files.read(&image.config, MAX_DOCUMENT)?;
        let mut layers = Vec::new();
        for layer in &image.layers {
            let (digest, size) = self.files.digest(layer)?;
            self.files.copy(layer, &self.store.blob(&digest))?;
            layers.push(Descriptor::new(DOCKER_LAYER, digest, size));
        }
        let config_digest = Digest::of(&config);
        self.store.add_blob(&config_digest, &config)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "layers": layers,
            "config": Descriptor::new(DOCKER_CONFIG, config_digest, config.len() as u64),
        });
        let manifest = manifest.to_string().into_bytes();
        let digest = Digest::of(&manifest);
        self.store.add_blob(&digest, &manifest)?;
        let names = image.repo_tags.iter().flatten().map(|name| parse(name));
        Ok((digest, names.collect::<Result<_, _>>()?))
    }

    /// Unpacks the layers of a manifest that the store has, and adds its record.
    fn install(&self, digest: Digest) -> Result<(), LoadError> {
        if self.store.image(&digest)?.is_some() {
            return Ok(());
        }
        let path = self.store.blob(&digest);
        let Document::Manifest(manifest) = manifest::parse(&fs::read(path)?, None)? else {
            return Err(LoadError::Format);
        };
        let config = self.config(&manifest)?;
        let (mut locks, mut bytes) = (Vec::new(), 0);
        for layer in layers(&manifest, &config)? {
            if !self.store.blob(&layer.blob).exists() {
                let name = blob_name(&layer.blob);
                let (found, _) = self.files.digest(&name)?;
                if found != layer.blob {
                    return Err(LoadError::Digest { file: name, found });
                }
                self.files.copy(&name, &self.store.blob(&layer.blob))?;
            }
            let lock = unpack_layer(self.store, &layer, self.limits)?;
            bytes += lock.bytes();
            locks.push(lock);
        }
        self.store.complete_layers(&locks)?;
        self.store.add(&record(digest, &manifest, &config, bytes))?;
        Ok(())
    }

    fn config(&self, manifest: &ImageManifest) -> Result<ImageConfig, LoadError> {
        let digest = &manifest.config.digest;
        let path = self.store.blob(digest);
        let bytes = if path.exists() {
            fs::read(path)?
        } else {
            let bytes = self.blob(digest)?;
            self.store.add_blob(digest, &bytes)?;
            bytes
        };
        Ok(ImageConfig::parse(&bytes).map_err(InstallError::Config)?)
    }

    /// A document among the blobs of a layout.
    fn blob(&self, digest: &Digest) -> Result<Vec<u8>, LoadError> {
        let file = blob_name(digest);
        let bytes = self.files.read(&file, MAX_DOCUMENT)?;
        let found = Digest::of(&bytes);
        if found != *digest {
            return Err(LoadError::Digest { file, found });
        }
        Ok(bytes)
    }

    fn json<T: DeserializeOwned>(&self, file: &str) -> Result<T, LoadError> {
        let bytes = self.files.read(file, MAX_DOCUMENT)?;
        serde_json::from_slice(&bytes).map_err(|source| LoadError::Json {
            file: file.to_owned(),
            source,
        })
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn parse(name: &str) -> Result<Reference, LoadError> {
    let shown = || LoadError::Name(name.chars().take(200).collect());
    name.parse().map_err(|_| shown())
}

#[cfg(test)]
mod tests;
