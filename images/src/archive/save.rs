//! Archive of images of a store: an OCI layout that `docker load` reads too.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};

use serde_json::{Value, json};
use tar::{Builder, Header};

use super::{IMAGE_NAME, REF_NAME, blob_name};
use crate::manifest::{self, Document, OCI_INDEX};
use crate::store::{Image, ImageStore};
use crate::{Digest, Reference};

/// Writes images as an archive to `out`.
pub fn save(store: &ImageStore, images: &[(Reference, Image)], out: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(out);
    let (mut written, mut entries, mut docker) = (BTreeSet::new(), Vec::new(), Vec::new());
    for (name, image) in images {
        let bytes = std::fs::read(store.blob(&image.digest))?;
        let parsed = manifest::parse(&bytes, None).map_err(io::Error::other)?;
        let Document::Manifest(manifest) = parsed else {
            return Err(io::Error::other("index in place of a manifest"));
        };
        let layers = manifest.layers.iter().map(|layer| layer.digest);
        let blobs = [image.digest, manifest.config.digest];
        for digest in blobs.into_iter().chain(layers.clone()) {
            if written.insert(digest) {
                blob(store, &digest, &mut archive)?;
            }
        }
        entries.push(json!({
            "mediaType": manifest::media_type(&bytes), "digest": image.digest, "size": bytes.len(),
            "annotations": {IMAGE_NAME: name.whole(), REF_NAME: name.tag().unwrap_or_default()},
        }));
        docker.push(json!({
            "Config": blob_name(&manifest.config.digest), "RepoTags": [name.whole()],
            "Layers": layers.map(|layer| blob_name(&layer)).collect::<Vec<_>>(),
        }));
    }
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
    document(
        "oci-layout",
        &json!({"imageLayoutVersion": "1.0.0"}),
        &mut archive,
    )?;
    document("index.json", &index, &mut archive)?;
    document("manifest.json", &Value::Array(docker), &mut archive)?;
    archive.into_inner()?.flush()
}

fn blob(store: &ImageStore, digest: &Digest, archive: &mut Builder<impl Write>) -> io::Result<()> {
    let file = File::open(store.blob(digest))?;
    let mut header = header(file.metadata()?.len());
    archive.append_data(&mut header, blob_name(digest), file)
}

fn document(name: &str, value: &Value, archive: &mut Builder<impl Write>) -> io::Result<()> {
    let text = value.to_string();
    archive.append_data(&mut header(text.len() as u64), name, text.as_bytes())
}

fn header(size: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}
