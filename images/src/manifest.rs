//! Manifests and indexes, of OCI and of Docker's second schema. Both are untrusted documents from a
//! registry, which the caller has bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// Layers of one image; an overlay mount takes no more, and Docker makes no more.
pub const MAX_LAYERS: usize = 127;

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Reference to a blob or manifest by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    /// Bytes of the blob as stored, compressed or not.
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    pub architecture: String,
    pub os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Manifest of an image for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// List of manifests for several platforms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    pub manifests: Vec<Descriptor>,
}

/// Parsed answer of `GET /v2/NAME/manifests/REFERENCE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Manifest(ImageManifest),
    Index(Index),
}

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("manifest is not valid: {0}")]
    Json(#[from] serde_json::Error),
    #[error("manifest of type {0:?} is not supported")]
    MediaType(String),
    #[error("image has {0} layers, the limit is {MAX_LAYERS}")]
    Layers(usize),
    #[error("layer of type {0:?} is not supported")]
    Layer(String),
    #[error("image has no manifest for {0}")]
    Platform(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
}

/// Parses a manifest or index. The document's own type wins over `media_type` of the transport; a
/// document that looks like both kinds is rejected, because clients disagree about it.
pub fn parse(bytes: &[u8], media_type: Option<&str>) -> Result<Document, ManifestError> {
    let kind: Kind = serde_json::from_slice(bytes)?;
    let stated = kind.media_type.as_deref().or(media_type);
    let is_index = match stated {
        Some(OCI_INDEX | DOCKER_LIST) => true,
        Some(OCI_MANIFEST | DOCKER_MANIFEST) => false,
        Some("application/json") | None => kind.manifests.is_some(),
        Some(other) => return Err(ManifestError::MediaType(other.chars().take(120).collect())),
    };
    if kind.manifests.is_some() && kind.layers.is_some() {
        return Err(ManifestError::MediaType("manifest and index".into()));
    }
    if is_index {
        return Ok(Document::Index(serde_json::from_slice(bytes)?));
    }
    let manifest: ImageManifest = serde_json::from_slice(bytes)?;
    if manifest.layers.len() > MAX_LAYERS {
        return Err(ManifestError::Layers(manifest.layers.len()));
    }
    for layer in &manifest.layers {
        is_layer(&layer.media_type)?;
    }
    Ok(Document::Manifest(manifest))
}

/// Type of a manifest or index that [`parse`] accepts, for descriptors of it.
pub(crate) fn media_type(bytes: &[u8]) -> String {
    let kind = serde_json::from_slice::<Kind>(bytes).ok();
    let is_index = kind.as_ref().is_some_and(|kind| kind.manifests.is_some());
    let default = if is_index { OCI_INDEX } else { OCI_MANIFEST };
    let stated = kind.and_then(|kind| kind.media_type);
    stated.unwrap_or_else(|| default.to_owned())
}

/// Layers are tar archives, plain or compressed. Others, such as foreign or encrypted layers, have
/// no content to unpack.
fn is_layer(media_type: &str) -> Result<(), ManifestError> {
    let oci = "application/vnd.oci.image.layer.v1.tar";
    let docker = "application/vnd.docker.image.rootfs.diff.tar";
    let known = [oci, docker].iter().any(|known| {
        let rest = media_type.strip_prefix(known);
        matches!(rest, Some("" | "+gzip" | "+zstd" | ".gzip" | ".zstd"))
    });
    if known {
        return Ok(());
    }
    Err(ManifestError::Layer(media_type.chars().take(120).collect()))
}

impl Descriptor {
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Describes a blob for an upload, which has no type.
    pub(crate) fn blob(digest: Digest, size: u64) -> Self {
        Self::new("", digest, size)
    }

    /// Returns whether an entry of an index is an image, and not an attestation of one.
    pub(crate) fn is_image(&self) -> bool {
        let platform = self.platform.as_ref();
        let is_known = platform.is_none_or(|platform| platform.os != "unknown");
        is_known && matches!(&*self.media_type, OCI_MANIFEST | DOCKER_MANIFEST)
    }
}

impl Platform {
    /// Platform of this machine, in the words of Go.
    pub fn here() -> Self {
        Self::linux(match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        })
    }

    /// Platform of a machine with this architecture, in the words of Go.
    pub fn linux(architecture: &str) -> Self {
        Self {
            architecture: architecture.into(),
            os: "linux".into(),
            variant: None,
        }
    }
}

impl Index {
    /// Manifest for `platform`. Attestations and other artifacts have platform `unknown`.
    pub fn select(&self, platform: &Platform) -> Result<&Descriptor, ManifestError> {
        let fits = |candidate: &&Descriptor| {
            candidate.platform.as_ref().is_some_and(|own| {
                own.os == platform.os && own.architecture == platform.architecture
            })
        };
        let unnamed = || match self.manifests.as_slice() {
            [only] if only.platform.is_none() => Some(only),
            _ => None,
        };
        let found = self.manifests.iter().find(fits).or_else(unnamed);
        found.ok_or_else(|| {
            ManifestError::Platform(format!("{}/{}", platform.os, platform.architecture))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": Digest::of(b"").to_string(), "size": 0})
    }

    fn manifest(layers: usize, layer: &str) -> Vec<u8> {
        let layers = vec![descriptor(layer); layers];
        let config = descriptor("application/vnd.oci.image.config.v1+json");
        json!({"schemaVersion": 2, "config": config, "layers": layers})
            .to_string()
            .into_bytes()
    }

    const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

    #[test]
    fn manifest_is_refused_with_too_many_or_foreign_layers() {
        assert!(parse(&manifest(127, LAYER), Some(OCI_MANIFEST)).is_ok());
        let error = parse(&manifest(10_000, LAYER), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "image has 10000 layers, the limit is 127"
        );
        let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
        assert!(parse(&manifest(1, foreign), None).is_err());
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        assert!(parse(&manifest(1, docker), Some(DOCKER_MANIFEST)).is_ok());
    }

    #[test]
    fn document_of_another_kind_is_refused() {
        let text = String::from_utf8(manifest(1, LAYER)).unwrap();
        let both = text.replacen('{', r#"{"manifests":[],"#, 1);
        assert!(parse(both.as_bytes(), Some(OCI_MANIFEST)).is_err());
        let first = "application/vnd.docker.distribution.manifest.v1+prettyjws";
        assert!(parse(&manifest(1, LAYER), Some(first)).is_err());
        assert!(parse(b"[]", None).is_err());
    }

    #[test]
    fn index_selects_the_manifest_of_the_platform() {
        let mut arm = descriptor(OCI_MANIFEST);
        arm["platform"] = json!({"os": "linux", "architecture": "arm64", "variant": "v8"});
        let mut amd = descriptor(OCI_MANIFEST);
        amd["platform"] = json!({"os": "linux", "architecture": "amd64"});
        amd["size"] = json!(7);
        let index = json!({"schemaVersion": 2, "manifests": [arm, amd]}).to_string();
        let Document::Index(index) = parse(index.as_bytes(), None).unwrap() else {
            panic!("no index");
        };
        let platform = |architecture: &str| Platform {
            architecture: architecture.into(),
            os: "linux".into(),
            variant: None,
        };
        assert_eq!(index.select(&platform("amd64")).unwrap().size, 7);
        let error = index.select(&platform("s390x")).unwrap_err();
        assert_eq!(error.to_string(), "image has no manifest for linux/s390x");
    }
}
