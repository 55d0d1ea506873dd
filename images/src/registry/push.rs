//! Uploads to registries (OCI distribution specification 1.1, "Push").

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Body, RequestBuilder, Response, Url};
use tokio_util::io::ReaderStream;

use super::{DELETE, Origin, PUSH, Registry, RegistryError, own_origin};
use crate::{Credentials, Descriptor, Digest, Reference};

/// Time of the upload of one blob.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(20);

/// Bytes of a blob.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    Bytes(&'a Bytes),
    File(&'a Path),
}

impl Content<'_> {
    /// Body of one attempt.
    fn body(&self) -> Body {
        match self {
            Self::Bytes(bytes) => Body::from((*bytes).clone()),
            Self::File(path) => match File::open(path) {
                Ok(file) => Body::wrap_stream(ReaderStream::new(tokio::fs::File::from_std(file))),
                Err(error) => Body::wrap_stream(stream::iter([io::Result::<Bytes>::Err(error)])),
            },
        }
    }
}

impl Registry {
    /// Uploads a blob to the repository of `reference`, unless it is there already. Returns whether
    /// it was uploaded.
    pub async fn push_blob(
        &self,
        reference: &Reference,
        blob: &Descriptor,
        content: Content<'_>,
        credentials: &Credentials,
    ) -> Result<bool, RegistryError> {
        let what = format!("{} {}", reference.whole(), blob.digest);
        let origin = own_origin(reference, credentials, PUSH);
        if self.has_blob(&origin, blob, &what).await? {
            return Ok(false);
        }
        let start = self.url(&origin, "blobs/uploads/");
        let empty = |request: RequestBuilder| request.header(CONTENT_LENGTH, 0);
        let started = self.send(&origin, &what, || empty(self.0.uploads.post(&start)));
        let mut url = self.location(&origin, &started.await?, &start, &what)?;
        let digest = blob.digest.to_string();
        url.query_pairs_mut().append_pair("digest", &digest);
        let put = || {
            let request = self.0.uploads.put(url.clone());
            let request = request.header(CONTENT_TYPE, "application/octet-stream");
            let request = request.header(CONTENT_LENGTH, blob.size);
            request.timeout(UPLOAD_TIMEOUT).body(content.body())
        };
        self.send(&origin, &what, put).await?;
        Ok(true)
    }

    async fn has_blob(
        &self,
        origin: &Origin<'_>,
        blob: &Descriptor,
        what: &str,
    ) -> Result<bool, RegistryError> {
        let head = self.url(origin, &format!("blobs/{}", blob.digest));
        match self.send(origin, what, || self.0.client.head(&head)).await {
            Ok(_) => Ok(true),
            // The response to HEAD has no body that says why; that of the upload has one.
            Err(RegistryError::NotFound { .. } | RegistryError::Denied { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the repository of `to` has a blob of `from`, by a mount if both are in one
    /// registry. Registries are free not to mount.
    pub async fn mount_blob(
        &self,
        from: &Reference,
        to: &Reference,
        blob: &Descriptor,
        credentials: &Credentials,
    ) -> Result<bool, RegistryError> {
        let what = format!("{} {}", to.whole(), blob.digest);
        let origin = own_origin(to, credentials, PUSH);
        if self.has_blob(&origin, blob, &what).await? {
            return Ok(true);
        }
        if from.registry() != to.registry() {
            return Ok(false);
        }
        let path = format!(
            "blobs/uploads/?mount={}&from={}",
            blob.digest,
            from.repository()
        );
        let url = self.url(&origin, &path);
        let mount = || self.0.uploads.post(&url).header(CONTENT_LENGTH, 0);
        match self.send(&origin, &what, mount).await {
            Ok(response) => Ok(response.status() == StatusCode::CREATED),
            Err(RegistryError::Unreachable { what, cause }) => {
                Err(RegistryError::Unreachable { what, cause })
            }
            // The upload says why.
            Err(_) => Ok(false),
        }
    }

    /// Names a manifest or index, whose parts were uploaded before, by the tag of `reference`.
    pub async fn push_manifest(
        &self,
        reference: &Reference,
        media_type: &str,
        manifest: &Bytes,
        credentials: &Credentials,
    ) -> Result<Digest, RegistryError> {
        let what = reference.whole();
        let origin = own_origin(reference, credentials, PUSH);
        let digest = Digest::of(manifest);
        let name = reference
            .tag()
            .map_or_else(|| digest.to_string(), str::to_owned);
        let url = self.url(&origin, &format!("manifests/{name}"));
        let put = || {
            let request = self.0.uploads.put(&url).header(CONTENT_TYPE, media_type);
            request.body(manifest.clone())
        };
        self.send(&origin, &what, put).await?;
        Ok(digest)
    }

    /// Deletes a manifest that `reference` names by its digest. Many registries do not allow it.
    pub async fn delete_manifest(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<(), RegistryError> {
        let origin = own_origin(reference, credentials, DELETE);
        let url = self.url(&origin, &super::manifest_path(reference));
        let delete = || self.0.client.delete(&url);
        self.send(&origin, &reference.whole(), delete).await?;
        Ok(())
    }

    /// Place of an upload. A registry cannot lead credentials to another host, nor an upload from
    /// HTTPS to HTTP.
    fn location(
        &self,
        origin: &Origin<'_>,
        response: &Response,
        base: &str,
        what: &str,
    ) -> Result<Url, RegistryError> {
        let refused = |reason: &str| RegistryError::Refused {
            what: what.to_owned(),
            reason: reason.to_owned(),
        };
        let base = Url::parse(base).map_err(|_| refused("name of the registry is not valid"))?;
        let location = response.headers().get(LOCATION);
        let location = location.and_then(|value| value.to_str().ok());
        let location = location.and_then(|value| base.join(value).ok());
        let location = location.ok_or_else(|| refused("registry names no place for the upload"))?;
        let is_own = location.host() == base.host()
            && location.port_or_known_default() == base.port_or_known_default();
        if !is_own || location.scheme() != self.scheme(&origin.host) {
            return Err(refused("registry wants the upload at another host"));
        }
        Ok(location)
    }
}

#[cfg(test)]
mod tests;
