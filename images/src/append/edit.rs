//! Manifests and configurations with one more layer. Everything else in them stays.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::inspect::stored_bytes;
use crate::manifest::{self, DOCKER_MANIFEST};
use crate::{Digest, ImageManifest, Layer};

const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Annotations that say what an image was made of (OCI image specification, "Annotations").
const BASE_NAME: &str = "org.opencontainers.image.base.name";
const BASE_DIGEST: &str = "org.opencontainers.image.base.digest";
/// Time of the new part of the history: the same layer always makes the same image.
const EPOCH: &str = "1970-01-01T00:00:00Z";
const CREATED_BY: &str = "sandbox-operator append";

#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("{0:?} is of the wrong type")]
    Type(&'static str),
    #[error("it has {layers} layers and {diff_ids} digests of unpacked layers")]
    Layers { layers: usize, diff_ids: usize },
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Additions to an image.
#[derive(Debug)]
pub(super) struct Edit<'a> {
    pub(super) layer: &'a Layer,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) base_name: &'a str,
    pub(super) base_digest: Digest,
}

/// New documents of an image for one platform.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) manifest: Bytes,
    pub(super) config: Bytes,
    /// Bytes of configuration and layers.
    pub(super) size: u64,
}

impl Edit<'_> {
    pub(super) fn image(&self, manifest: &[u8], config: &[u8]) -> Result<Edited, EditError> {
        let config = self.config(serde_json::from_slice(config)?)?;
        let is_docker = manifest::media_type(manifest) == DOCKER_MANIFEST;
        let mut document = serde_json::from_slice(manifest)?;
        let top = object(&mut document, "manifest")?;
        let media_type = if is_docker { DOCKER_LAYER } else { OCI_LAYER };
        let layer = json!({
            "mediaType": media_type,
            "digest": self.layer.digest,
            "size": self.layer.size,
        });
        array(top, "layers")?.push(layer);
        let described = object(top.entry("config").or_insert(Value::Null), "config")?;
        described.insert("digest".into(), json!(Digest::of(&config)));
        described.insert("size".into(), json!(config.len()));
        // Embedded bytes would be those of the old one.
        described.remove("data");
        if !is_docker {
            let annotations = top.entry("annotations").or_insert(Value::Null);
            let annotations = object(annotations, "annotations")?;
            annotations.insert(BASE_NAME.into(), json!(self.base_name));
            annotations.insert(BASE_DIGEST.into(), json!(self.base_digest));
        }
        let manifest = Bytes::from(serde_json::to_vec(&document)?);
        let size = stored_bytes(&serde_json::from_slice::<ImageManifest>(&manifest)?);
        Ok(Edited {
            manifest,
            config,
            size,
        })
    }

    fn config(&self, mut document: Value) -> Result<Bytes, EditError> {
        let top = object(&mut document, "configuration")?;
        let rootfs = object(top.entry("rootfs").or_insert(Value::Null), "rootfs")?;
        array(rootfs, "diff_ids")?.push(json!(self.layer.diff_id));
        // A history that does not cover all layers would be misread.
        if top.get("history").is_some_and(|history| !history.is_null()) {
            let step = json!({"created": EPOCH, "created_by": CREATED_BY});
            array(top, "history")?.push(step);
        }
        let process = object(top.entry("config").or_insert(Value::Null), "config")?;
        let labels = object(process.entry("Labels").or_insert(Value::Null), "Labels")?;
        for (name, value) in self.labels {
            labels.insert(name.clone(), json!(value));
        }
        Ok(Bytes::from(serde_json::to_vec(&document)?))
    }
}

/// Index of the edited images in place of those of `parts`. Attestations are left out, because they
/// are of the old ones.
pub(super) fn index(old: &[u8], parts: &[(Digest, Edited)]) -> Result<Bytes, EditError> {
    let mut document = serde_json::from_slice(old)?;
    let entries = array(object(&mut document, "index")?, "manifests")?;
    let mut kept = Vec::new();
    for mut entry in std::mem::take(entries) {
        let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
        let part = parts.iter().find(|(old, _)| old.to_string() == digest);
        if let Some((_, edited)) = part {
            let fields = object(&mut entry, "manifests")?;
            fields.insert("digest".into(), json!(Digest::of(&edited.manifest)));
            fields.insert("size".into(), json!(edited.manifest.len()));
            fields.remove("data");
            kept.push(entry);
        }
    }
    *entries = kept;
    Ok(Bytes::from(serde_json::to_vec(&document)?))
}

/// Fields of a value; null has none yet.
fn object<'a>(
    value: &'a mut Value,
    name: &'static str,
) -> Result<&'a mut Map<String, Value>, EditError> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or(EditError::Type(name))
}

/// Elements of a field; null has none yet.
fn array<'a>(
    fields: &'a mut Map<String, Value>,
    name: &'static str,
) -> Result<&'a mut Vec<Value>, EditError> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or(EditError::Type(name))
}
