//! Client of registries (OCI distribution specification 1.1, "Pull"). Registries are untrusted:
//! every document has a limit, and every byte is checked against a digest.

mod download;
mod head;
mod part;
mod push;
mod response;
mod send;
mod token;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder};
use serde::Deserialize;

use self::download::Download;
pub use self::push::Content;
use self::response::{bounded, causes};
use self::token::Tokens;
use crate::credentials::{Credentials, Login};
use crate::manifest::{DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::{Descriptor, Digest, Reference};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a byte after which a request has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time of a request of an upload that carries little.
const UPLOAD_START_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of a manifest or index.
const MAX_MANIFEST: u64 = 4 << 20;
/// Attempts of a request that the registry cannot serve at the moment, and the pauses between them.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Actions that a token allows.
const PULL: &str = "pull";
const PUSH: &str = "pull,push";
const DELETE: &str = "pull,push,delete";

/// Ways to registries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// `HOST[:PORT]` of registries that are reached over HTTP.
    pub insecure: BTreeSet<String>,
    /// Hosts that are asked before a registry, by registry.
    pub mirrors: BTreeMap<String, Vec<String>>,
}

/// A registry did not deliver. Texts contain the registry's own words and no secrets.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("{what}: not found{words}")]
    NotFound { what: String, words: String },
    #[error("{what}: access denied{words}")]
    Denied { what: String, words: String },
    #[error("{what}: status {status}{words}")]
    Status {
        what: String,
        status: u16,
        words: String,
    },
    #[error("{what}: {cause}")]
    Unreachable { what: String, cause: String },
    #[error("{what}: {reason}")]
    Refused { what: String, reason: String },
    #[error("{what}: {source}")]
    Disk {
        what: String,
        source: std::io::Error,
    },
    #[error("client of registries: {0}")]
    Client(String),
}

/// Client of all registries; cheap to clone.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    /// Client without a limit for the time until the response begins.
    uploads: Client,
    settings: RegistrySettings,
    tokens: Tokens,
    /// Pause after a failed attempt, multiplied by their number.
    pause: Duration,
}

/// One host that is asked for a repository.
#[derive(Debug, Clone)]
struct Origin<'a> {
    host: String,
    repository: &'a str,
    /// Never those of the registry for its mirror.
    login: Option<&'a Login>,
    /// Actions of tokens.
    actions: &'static str,
}

impl Registry {
    /// Proxies come from the usual variables of the environment.
    pub fn new(settings: &RegistrySettings) -> Result<Self, RegistryError> {
        Self::with_pause(settings, PAUSE)
    }

    fn with_pause(settings: &RegistrySettings, pause: Duration) -> Result<Self, RegistryError> {
        // Another part of the process may have done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                .user_agent(concat!("sandbox-operator/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
        };
        Ok(Self(Arc::new(Inner {
            pause,
            client: build(|| builder().read_timeout(READ_TIMEOUT))?,
            uploads: build(|| builder().timeout(UPLOAD_START_TIMEOUT))?,
            settings: settings.clone(),
            tokens: Tokens::default(),
        })))
    }

    /// Digest of the manifest or index that `reference` names.
    pub async fn resolve(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<Digest, RegistryError> {
        if let Some(digest) = reference.digest() {
            let refused = |error: crate::DigestError| RegistryError::Refused {
                what: reference.whole(),
                reason: error.to_string(),
            };
            return digest.parse().map_err(refused);
        }
        let (descriptor, _) = self.manifest(reference, credentials).await?;
        Ok(descriptor.digest)
    }

    /// Reads a manifest or index, and checks it if `reference` has a digest.
    pub async fn manifest(
        &self,
        reference: &Reference,
        credentials: &Credentials,
    ) -> Result<(Descriptor, Bytes), RegistryError> {
        let path = manifest_path(reference);
        let what = reference.whole();
        let mut failed = None;
        for origin in self.origins(reference, credentials) {
            match self.manifest_from(&origin, &path, &what, reference).await {
                Ok(found) => return Ok(found),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(RegistryError::Client("no registry".into())))
    }

    async fn manifest_from(
        &self,
        origin: &Origin<'_>,
        path: &str,
        what: &str,
        reference: &Reference,
    ) -> Result<(Descriptor, Bytes), RegistryError> {
        let response = self.get(origin, path, what, accept_manifests).await?;
        let media_type = response.headers().get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|value| value.split(';').next());
        let media_type = media_type.unwrap_or_default().trim().to_owned();
        let bytes = bounded(response, MAX_MANIFEST, what).await?;
        let digest = Digest::of(&bytes);
        if let Some(stated) = reference.digest() {
            check(what, stated, &digest)?;
        }
        let descriptor = Descriptor::new(&media_type, digest, bytes.len() as u64);
        Ok((descriptor, bytes))
    }

    /// Reads a small blob of at most `limit` bytes.
    pub async fn blob(
        &self,
        reference: &Reference,
        blob: &Descriptor,
        credentials: &Credentials,
        limit: u64,
    ) -> Result<Bytes, RegistryError> {
        let what = format!("{} {}", reference.whole(), blob.digest);
        if blob.size > limit {
            let reason = format!("{} bytes exceed the limit of {limit}", blob.size);
            return Err(RegistryError::Refused { what, reason });
        }
        let path = format!("blobs/{}", blob.digest);
        let mut failed = None;
        for origin in self.origins(reference, credentials) {
            let read = async {
                let response = self.get(&origin, &path, &what, |request| request).await?;
                let bytes = bounded(response, blob.size, &what).await?;
                check(&what, &blob.digest.to_string(), &Digest::of(&bytes))?;
                Ok(bytes)
            };
            match read.await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or(RegistryError::Client("no registry".into())))
    }

    /// Downloads a blob to the file `into`, beside which it keeps an unfinished part for the next
    /// attempt. `progress` gets the number of bytes that were added, those of an earlier attempt
    /// too.
    pub async fn download(
        &self,
        reference: &Reference,
        blob: &Descriptor,
        credentials: &Credentials,
        into: &Path,
        progress: impl Fn(u64),
    ) -> Result<(), RegistryError> {
        let what = format!("{} {}", reference.whole(), blob.digest);
        let origins = self.origins(reference, credentials);
        let download = Download {
            registry: self,
            origins: &origins,
            blob,
            what: &what,
        };
        download.run(into, &progress).await
    }

    /// Mirrors of the image's registry, and then itself.
    fn origins<'a>(
        &self,
        reference: &'a Reference,
        credentials: &'a Credentials,
    ) -> Vec<Origin<'a>> {
        let registry = reference.registry();
        let mirrors = self.0.settings.mirrors.get(registry);
        let mirrors = mirrors.into_iter().flatten().map(|mirror| Origin {
            host: mirror.clone(),
            repository: reference.repository(),
            login: None,
            actions: PULL,
        });
        mirrors
            .chain([own_origin(reference, credentials, PULL)])
            .collect()
    }
}

/// Builds a client. Where there are no certificates of authorities, as in an image of one program, it
/// has those of Mozilla.
fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, RegistryError> {
    let built = builder().build().or_else(|_| {
        let authorities = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let authorities = authorities.map(|authority| Certificate::from_der(authority));
        let authorities: Vec<_> = authorities.collect::<Result<_, _>>()?;
        builder().tls_certs_only(authorities).build()
    });
    built.map_err(|error| RegistryError::Client(causes(&error)))
}

fn manifest_path(reference: &Reference) -> String {
    let tag = reference.digest().or_else(|| reference.tag());
    format!("manifests/{}", tag.unwrap_or("latest"))
}

/// Without all four types, registries answer 404 for manifests that they have.
fn accept_manifests(request: RequestBuilder) -> RequestBuilder {
    let types = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_LIST];
    request.header(ACCEPT, types.join(", "))
}

/// The registry of an image itself.
fn own_origin<'a>(
    reference: &'a Reference,
    credentials: &'a Credentials,
    actions: &'static str,
) -> Origin<'a> {
    let host = match reference.registry() {
        "docker.io" => "registry-1.docker.io",
        other => other,
    };
    Origin {
        host: host.to_owned(),
        repository: reference.repository(),
        login: credentials.find(reference),
        actions,
    }
}

fn check(what: &str, expected: &str, found: &Digest) -> Result<(), RegistryError> {
    if found.to_string() == expected {
        return Ok(());
    }
    Err(RegistryError::Refused {
        what: what.to_owned(),
        reason: format!("content has digest {found}"),
    })
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
