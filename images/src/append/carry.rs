//! Layers of an image in another repository, where an image that has them is to be.

use crate::manifest::{self, Document, ManifestError};
use crate::registry::Content;
use crate::{Credentials, Descriptor, Reference, Registry, RegistryError};

use super::{AppendError, Parent};

impl Parent {
    /// Copies the layers to the repository of `to`, unless they are there, and returns the image as
    /// one of that repository. A layer of another registry takes at most `limit` bytes of the disk
    /// meanwhile.
    pub async fn carry(
        mut self,
        to: &Reference,
        limit: u64,
        registry: &Registry,
        credentials: &Credentials,
    ) -> Result<Self, AppendError> {
        if self.is_beside(to) {
            return Ok(self);
        }
        for variant in &self.variants {
            let Document::Manifest(parsed) = manifest::parse(&variant.manifest, None)? else {
                return Err(ManifestError::MediaType("index in an index".into()).into());
            };
            for layer in &parsed.layers {
                copy(registry, (&self.reference, to), layer, limit, credentials).await?;
            }
        }
        self.reference = to.clone_with_digest(self.digest.to_string());
        Ok(self)
    }
}

async fn copy(
    registry: &Registry,
    (from, to): (&Reference, &Reference),
    blob: &Descriptor,
    limit: u64,
    credentials: &Credentials,
) -> Result<(), RegistryError> {
    if registry.mount_blob(from, to, blob, credentials).await? {
        return Ok(());
    }
    let what = format!("{} {}", from.whole(), blob.digest);
    if blob.size > limit {
        let reason = format!(
            "a layer of {} bytes exceeds the limit of {limit}",
            blob.size
        );
        return Err(RegistryError::Refused { what, reason });
    }
    let directory = tempfile::tempdir();
    let directory = directory.map_err(|source| RegistryError::Disk { what, source })?;
    let path = directory.path().join("blob");
    let downloaded = registry.download(from, blob, credentials, &path, |_| {});
    downloaded.await?;
    let content = Content::File(&path);
    registry.push_blob(to, blob, content, credentials).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use http::header::LOCATION;
    use serde_json::json;

    use super::*;
    use crate::manifest::{OCI_INDEX, OCI_MANIFEST, Platform};
    use crate::registry::fake::{FakeRegistry, response};
    use crate::{Addition, Digest, Layer};

    const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

    /// Registry with an image of two platforms in `library/base`, which mounts its first layer only.
    async fn start() -> (FakeRegistry, Digest) {
        let blobs = ["first", "second"].map(|text| text.as_bytes().to_vec());
        let diff_ids: Vec<_> = blobs.iter().map(|blob| Digest::of(blob)).collect();
        let config = json!({"architecture": "arm64", "rootfs": {"diff_ids": diff_ids}});
        let config = config.to_string().into_bytes();
        let describe = |kind: &str, blob: &[u8]| json!({"mediaType": kind, "digest": Digest::of(blob), "size": blob.len()});
        let layers: Vec<_> = blobs.iter().map(|blob| describe(LAYER, blob)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": describe(CONFIG, &config), "layers": layers,
        });
        let manifest = manifest.to_string().into_bytes();
        let platform = |architecture: &str, digest| {
            json!({"mediaType": OCI_MANIFEST, "digest": digest, "size": 1,
                "platform": {"os": "linux", "architecture": architecture}})
        };
        let index = json!({
            "schemaVersion": 2, "mediaType": OCI_INDEX,
            "manifests": [
                platform("amd64", Digest::of(b"other")),
                platform("arm64", Digest::of(&manifest)),
            ],
        });
        let index = index.to_string().into_bytes();
        let (first, top) = (Digest::of(&blobs[0]).to_string(), Digest::of(&index));
        let mut content = BTreeMap::from([
            (Digest::of(&manifest).to_string(), (OCI_MANIFEST, manifest)),
            (top.to_string(), (OCI_INDEX, index)),
            (Digest::of(&config).to_string(), ("", config)),
        ]);
        for blob in blobs {
            content.insert(Digest::of(&blob).to_string(), ("", blob));
        }
        let content = Arc::new(content);
        let fake = FakeRegistry::start(move |path, request| {
            let name = path.rsplit('/').next().unwrap_or_default();
            match request.method().as_str() {
                "GET" if path.starts_with("/v2/library/base/") => {
                    let (kind, bytes) = &content[name];
                    response(200, &[("content-type", kind)], bytes.clone())
                }
                "POST" if path.contains(&first) => response(201, &[], ""),
                "POST" => response(202, &[(LOCATION.as_str(), "/upload")], ""),
                "PUT" => response(201, &[], ""),
                _ => response(404, &[], ""),
            }
        });
        (fake.await, top)
    }

    #[tokio::test]
    async fn layers_are_mounted_or_copied_into_the_repository_of_the_new_image() {
        let (fake, top) = start().await;
        let (registry, none) = (fake.registry(), Credentials::default());
        let base = fake.reference(&format!("library/base@{top}"));
        let arm = Platform::linux("arm64");
        let load = || Parent::load_platform(&registry, &base, &none, &arm);
        let target = fake.reference("team/runtime:new");
        let small = load().await.unwrap().carry(&target, 3, &registry, &none);
        let error = small.await.unwrap_err().to_string();
        assert!(error.contains("exceeds the limit of 3"), "{error}");

        let before = fake.paths().len();
        let carried = load().await.unwrap().carry(&target, 100, &registry, &none);
        let carried = carried.await.unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let layer = Layer {
            digest: Digest::of(b""),
            diff_id: Digest::of(b""),
            size: 0,
        };
        let labels = BTreeMap::new();
        let addition = Addition {
            layer: &layer,
            file: file.path(),
            labels: &labels,
        };
        let targets = [target];
        let appended = carried.append(addition, &targets, &registry, &none).await;
        let appended = appended.unwrap();
        let paths = fake.paths().split_off(before);
        let has = |text: &str| paths.iter().any(|path| path.contains(text));
        let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
        assert!(has(&format!(
            "/v2/team/runtime/blobs/uploads/?mount={first}&from=library/base"
        )));
        assert!(!has(&format!("/v2/library/base/blobs/{first}")));
        assert!(has(&format!("/v2/library/base/blobs/{second}")));
        let uploaded = second.to_string().replace(':', "%3A");
        assert!(has(&format!("/upload?digest={uploaded}")), "{paths:?}");
        // A manifest for one platform, and not the index.
        assert!(has("/v2/team/runtime/manifests/new"));
        assert!(appended.digest != top);
    }
}
