//! Digests of images, without their documents.

use http::HeaderName;

use super::{Registry, RegistryError, accept_manifests, manifest_path};
use crate::{Credentials, Digest, Reference};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

impl Registry {
    /// Asks for the digest of the manifest or index that `reference` names now.
    pub async fn head(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<Digest, RegistryError> {
        let (path, what) = (manifest_path(reference), reference.whole());
        for origin in self.origins(reference, credentials) {
            let url = self.url(&origin, &path);
            let request = || accept_manifests(self.0.client.head(&url));
            let Ok(response) = self.send(&origin, &what, request).await else {
                continue;
            };
            let digest = response.headers().get(CONTENT_DIGEST);
            let digest = digest.and_then(|value| value.to_str().ok()?.parse().ok());
            if let Some(digest) = digest {
                return Ok(digest);
            }
        }
        // Some registries do not answer HEAD, and only this response says why it is refused.
        let (descriptor, _) = self.manifest(reference, credentials).await?;
        Ok(descriptor.digest)
    }
}
