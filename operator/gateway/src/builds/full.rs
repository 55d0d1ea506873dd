//! Preparation of full builds. The build context goes into the tenant's repository as an image of
//! one layer; the controller builds what has one, whichever replica wrote it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use bytes::Bytes;
use crds::ImageBuild;
use images::manifest::OCI_MANIFEST;
use images::{Content, Descriptor, Digest, Layer, LayerWriter, Owner, Reference};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use shared::image_builds::reason::{DISK_ERROR, INTERRUPTED, REGISTRY_ERROR};
use tar::EntryType;
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

use super::Builds;
use super::context::{ContextEntry, ContextFiles};
use super::judgement::unknown_parent;
use super::make::{CONTEXT_LABEL, TENANT_LABEL, Task};
use super::outcome::{Failure, Made};
use super::registries::Registries;

/// Owner of the files of a context; builders copy them as root.
const ROOT: Owner = Owner { uid: 0, gid: 0 };
const DOCKERFILE: &[u8] = b"Dockerfile";
const DOCKERFILE_MODE: u32 = 0o644;
/// Label that makes the context of each build another image, so that one can be deleted.
const BUILD_LABEL: &str = "openhands.dev/image-build";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

impl Builds {
    /// Hands a build over to the controller. Returns the image if it exists already.
    pub(super) async fn hand_over(
        &self,
        registries: &Registries,
        task: &mut Task,
    ) -> Result<Option<Made>, Failure> {
        let build = task.build.clone();
        let target = build.spec.target.parse::<Reference>();
        let target = target.map_err(|error| Failure::new("InvalidTarget", &error))?;
        // The first image of a name keeps it.
        if let Some(found) = registries.find(&target).await? {
            return Ok(Some(found.into()));
        }
        let base_image = base_image(registries, task).await?;
        let Some((files, _permit)) = task.files.take() else {
            return Err(Failure::new(
                INTERRUPTED,
                &"the build context is lost; start again",
            ));
        };
        let dockerfile = std::mem::take(&mut task.dockerfile);
        let context = push_context(registries, &build, &target, files, dockerfile).await?;
        let status = json!({"context": context, "baseImage": base_image});
        let reported = self.store.report(&build, &status).await;
        reported.map_err(|error| Failure::new(INTERRUPTED, &error))?;
        Ok(None)
    }
}

/// Base image by its digest, if it belongs to the tenant: the builder gets it without credentials
/// of its own. It pulls any other one as everyone can.
async fn base_image(registries: &Registries, task: &Task) -> Result<Option<String>, Failure> {
    let base = task.build.spec.base.as_deref();
    let parsed = base.and_then(|base| base.parse::<Reference>().ok());
    let Some(base) = parsed else {
        return Ok(None);
    };
    if !task.is_foreign_parent {
        return Ok(None);
    }
    match registries.find(&base).await? {
        Some(found) => {
            let digest = found.digest.to_string();
            Ok(Some(base.clone_with_digest(digest).whole()))
        }
        None => Err(Failure::new("UnknownBase", &unknown_parent(&base.whole()))),
    }
}

/// Uploads the context, and returns its reference.
async fn push_context(
    registries: &Registries,
    build: &ImageBuild,
    target: &Reference,
    files: ContextFiles,
    dockerfile: String,
) -> Result<String, Failure> {
    let write = move || {
        let file = NamedTempFile::new()?;
        let layer = write_context(&files, &dockerfile, file.path())?;
        Ok((layer, file))
    };
    let written = spawn_blocking(write).await;
    let written = written.map_err(|_| Failure::new(INTERRUPTED, &"internal error"))?;
    let (layer, file) = written.map_err(|error: io::Error| Failure::new(DISK_ERROR, &error))?;
    let config = Bytes::from(config(build, &layer).to_string());
    let manifest = Bytes::from(manifest(&layer, &config).to_string());
    let digest = Digest::of(&manifest);
    let credentials = registries.credentials().await?;
    let client = &registries.client;
    let failed = |error: images::RegistryError| Failure::new(REGISTRY_ERROR, &error);
    let blob = Descriptor::new(LAYER_TYPE, layer.digest, layer.size);
    let pushed = client.push_blob(target, &blob, Content::File(file.path()), &credentials);
    pushed.await.map_err(failed)?;
    let blob = Descriptor::new(CONFIG_TYPE, Digest::of(&config), config.len() as u64);
    let pushed = client.push_blob(target, &blob, Content::Bytes(&config), &credentials);
    pushed.await.map_err(failed)?;
    // The tag keeps the context from the registry's garbage collection.
    let (host, repository) = (target.registry(), target.repository());
    let tag = format!("ctx-{}", build.name_any());
    let tagged = Reference::with_tag(host.into(), repository.into(), tag);
    let pushed = client.push_manifest(&tagged, OCI_MANIFEST, &manifest, &credentials);
    pushed.await.map_err(failed)?;
    Ok(target.clone_with_digest(digest.to_string()).whole())
}

/// Writes Dockerfile and files as a compressed archive. The last entry of a path counts.
fn write_context(files: &ContextFiles, dockerfile: &str, to: &Path) -> io::Result<Layer> {
    let mut writer = LayerWriter::new(std::fs::File::create(to)?, ROOT);
    let size = dockerfile.len() as u64;
    writer.file(DOCKERFILE, DOCKERFILE_MODE, size, dockerfile.as_bytes())?;
    // That of the context itself has no path.
    let entries = files
        .entries()
        .iter()
        .filter(|entry| !entry.path.is_empty());
    let entries: BTreeMap<_, _> = entries.map(|entry| (&entry.path, entry)).collect();
    let is_hard_link = |entry: &&&ContextEntry| entry.kind == EntryType::Link;
    for entry in entries.values().filter(|entry| !is_hard_link(entry)) {
        match entry.kind {
            EntryType::Directory => writer.directory(&entry.path, entry.mode)?,
            EntryType::Symlink => writer.link(entry.kind, &entry.path, &entry.link)?,
            _ => writer.file(&entry.path, entry.mode, entry.size, files.open(entry)?)?,
        }
    }
    // A hard link comes after its target.
    for entry in entries.values().filter(is_hard_link) {
        writer.link(entry.kind, &entry.path, &entry.link)?;
    }
    Ok(writer.finish()?.0)
}

fn config(build: &ImageBuild, layer: &Layer) -> Value {
    json!({
        "architecture": "unknown", "os": "unknown",
        "config": {"Labels": {
            TENANT_LABEL: build.spec.tenant, CONTEXT_LABEL: build.spec.context_digest,
            BUILD_LABEL: build.uid(),
        }},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id]},
    })
}

fn manifest(layer: &Layer, config: &[u8]) -> Value {
    json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST,
        "config": Descriptor::new(CONFIG_TYPE, Digest::of(config), config.len() as u64),
        "layers": [Descriptor::new(LAYER_TYPE, layer.digest, layer.size)],
    })
}
