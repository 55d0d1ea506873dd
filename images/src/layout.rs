//! Images between a registry and a builder: OCI layouts as directories (OCI image specification,
//! "Image Layout").

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use rustix::fs::OFlags;
use serde_json::json;

use crate::inspect::{InspectError, one_manifest, stored_bytes};
use crate::manifest::{self, Document, Index, ManifestError, OCI_INDEX, Platform};
use crate::{Content, Credentials, Digest, ImageManifest, Reference};
use crate::{Registry, RegistryError};

/// Downloads of one image at a time.
const MAX_DOWNLOADS: usize = 4;
/// Bytes of a document.
const MAX_DOCUMENT: u64 = 4 << 20;
const VERSION: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

/// A layout cannot be read, written, or exchanged with a registry.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Platform(#[from] InspectError),
    #[error("{path}: {source}")]
    Disk { path: String, source: io::Error },
    #[error("{0} in the layout is not a regular file")]
    Special(String),
    #[error("{0} in the layout exceeds {MAX_DOCUMENT} bytes")]
    LargeDocument(String),
    #[error("{file} in the layout has digest {found}")]
    Digest { file: String, found: Digest },
    #[error("layout has {0} images for this machine, not one")]
    Images(usize),
}

/// An image that was uploaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub digest: Digest,
    /// Bytes of configuration and layers in the registry.
    pub size: u64,
}

/// Downloads an image for this machine's platform into the new directory `to`. Its index names the
/// digest that `reference` has, also if that is the one of an image for several platforms.
pub async fn fetch_layout(
    registry: &Registry,
    reference: &Reference,
    credentials: &Credentials,
    to: &Path,
) -> Result<(), LayoutError> {
    let blobs = to.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|source| disk(&blobs, source))?;
    let blob = |digest: &Digest| blobs.join(digest.hex());
    let (top, bytes) = registry.manifest(reference, credentials).await?;
    write(&blob(&top.digest), &bytes)?;
    let manifest = match manifest::parse(&bytes, Some(&top.media_type))? {
        Document::Manifest(manifest) => manifest,
        Document::Index(index) => {
            let own = index.select(&Platform::here())?.digest;
            let part = reference.clone_with_digest(own.to_string());
            let (manifest, bytes) = one_manifest(registry, &part, credentials).await?;
            write(&blob(&own), &bytes)?;
            manifest
        }
    };
    let parts = manifest.layers.iter().chain([&manifest.config]);
    let downloads: Vec<_> = parts
        .map(|part| {
            let file = blob(&part.digest);
            async move {
                let downloaded = registry.download(reference, part, credentials, &file, |_| {});
                downloaded.await
            }
        })
        .collect();
    let mut downloads = stream::iter(downloads).buffer_unordered(MAX_DOWNLOADS);
    while let Some(done) = downloads.next().await {
        done?;
    }
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [top]});
    write(&to.join("oci-layout"), VERSION.as_bytes())?;
    write(&to.join("index.json"), index.to_string().as_bytes())
}

/// Uploads the image of a layout to the repository of `targets`, and names it by all of them. The
/// layout may come from a hostile program, which has ended.
pub async fn push_layout(
    layout: &Path,
    targets: &[Reference],
    registry: &Registry,
    credentials: &Credentials,
) -> Result<Pushed, LayoutError> {
    let layout = Layout(layout);
    let (media_type, bytes, manifest) = layout.image()?;
    let Some(first) = targets.first() else {
        return Err(LayoutError::Images(0));
    };
    for part in manifest.layers.iter().chain([&manifest.config]) {
        let file = layout.blob(&part.digest)?;
        let pushed = registry.push_blob(first, part, Content::File(&file), credentials);
        pushed.await?;
    }
    for target in targets {
        let pushed = registry.push_manifest(target, &media_type, &bytes, credentials);
        pushed.await?;
    }
    Ok(Pushed {
        digest: Digest::of(&bytes),
        size: stored_bytes(&manifest),
    })
}

/// Directory of a layout that is read without following links.
struct Layout<'a>(&'a Path);

impl Layout<'_> {
    /// Type, text and content of the manifest for this machine.
    fn image(&self) -> Result<(String, Bytes, ImageManifest), LayoutError> {
        let index = read_document(&self.0.join("index.json"))?;
        let index: Index = serde_json::from_slice(&index).map_err(ManifestError::Json)?;
        let [entry] = index.manifests.as_slice() else {
            return Err(LayoutError::Images(index.manifests.len()));
        };
        let mut bytes = self.document(&entry.digest)?;
        let mut document = manifest::parse(&bytes, Some(&entry.media_type))?;
        if let Document::Index(index) = document {
            bytes = self.document(&index.select(&Platform::here())?.digest)?;
            document = manifest::parse(&bytes, None)?;
        }
        Ok((manifest::media_type(&bytes), bytes, one(document)?))
    }

    fn document(&self, digest: &Digest) -> Result<Bytes, LayoutError> {
        let file = self.blob(digest)?;
        let bytes = read_document(&file)?;
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes.into()),
            found => Err(LayoutError::Digest {
                file: file.display().to_string(),
                found,
            }),
        }
    }

    /// Path of a blob, which is a regular file below real directories.
    fn blob(&self, digest: &Digest) -> Result<PathBuf, LayoutError> {
        let mut path = self.0.to_owned();
        for name in ["blobs", "sha256"] {
            path.push(name);
            if !kind(&path)?.is_dir() {
                return Err(LayoutError::Special(path.display().to_string()));
            }
        }
        path.push(digest.hex());
        if !kind(&path)?.is_file() {
            return Err(LayoutError::Special(path.display().to_string()));
        }
        Ok(path)
    }
}

fn kind(path: &Path) -> Result<fs::FileType, LayoutError> {
    let found = path.symlink_metadata().map(|found| found.file_type());
    found.map_err(|source| disk(path, source))
}

fn one(document: Document) -> Result<ImageManifest, ManifestError> {
    match document {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => Err(ManifestError::MediaType("index in an index".into())),
    }
}

fn read_document(path: &Path) -> Result<Vec<u8>, LayoutError> {
    let read = || {
        // A pipe would block here.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?;
        let mut bytes = Vec::new();
        file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|source| disk(path, source))?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(LayoutError::LargeDocument(path.display().to_string()));
    }
    Ok(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LayoutError> {
    let write = || fs::File::create(path)?.write_all(bytes);
    write().map_err(|source| disk(path, source))
}

fn disk(path: &Path, source: io::Error) -> LayoutError {
    LayoutError::Disk {
        path: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
