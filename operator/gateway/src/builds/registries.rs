//! Digests, sizes and times of images in registries, cached.
//!
//! Clients name any image, so only registries that the administrator has named are asked: those of
//! the Docker configuration, and those of the API keys' prefixes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use images::{
    Credentials, CredentialsError, Digest, InspectError, Inspection, Reference, Registry,
    RegistryError, RegistrySettings, inspect,
};
use moka::Expiry;
use moka::future::Cache;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Time for which a tag is taken to mean the same image, and for which it is taken to be missing.
const FOUND_FOR: Duration = Duration::from_mins(1);
const MISSING_FOR: Duration = Duration::from_secs(2);
const MAX_CACHED: u64 = 10_000;
/// Questions at once, each of up to four requests.
const MAX_CONCURRENT: usize = 16;
/// Time of one question. Clients wait for 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Ways to registries, from flags.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RegistryArgs {
    /// Registries of image builds, with credentials, in the format of Docker's config.json. It is
    /// read again when it changes.
    #[arg(
        long = "registry-config",
        env = "GATEWAY_REGISTRY_CONFIG",
        value_name = "FILE"
    )]
    pub config: Option<PathBuf>,

    /// Registries that are reached over HTTP, as HOST[:PORT], separated by commas.
    #[arg(
        long = "insecure-registries",
        env = "GATEWAY_INSECURE_REGISTRIES",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub insecure: Vec<String>,
}

/// A registry did not answer the question.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("the gateway's Docker configuration: {0}")]
    Config(String),
    #[error(transparent)]
    Registry(#[from] Arc<InspectError>),
    #[error("no answer from the registry within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Client of the registries, with caches.
#[derive(Debug)]
pub struct Registries {
    pub(super) client: Registry,
    config: Option<PathBuf>,
    permits: Semaphore,
    /// Digests by reference.
    digests: Cache<String, Option<Digest>>,
    images: Cache<(String, Digest), Inspection>,
}

impl Registries {
    pub fn new(args: &RegistryArgs) -> Result<Self, RegistryError> {
        let mut settings = RegistrySettings::default();
        let insecure = args.insecure.iter().filter(|host| !host.is_empty());
        settings.insecure.extend(insecure.cloned());
        let digests = Cache::builder().max_capacity(MAX_CACHED);
        Ok(Self {
            client: Registry::new(&settings)?,
            config: args.config.clone(),
            permits: Semaphore::new(MAX_CONCURRENT),
            digests: digests.expire_after(DigestLife).build(),
            images: Cache::new(MAX_CACHED),
        })
    }

    /// Reads the Docker configuration: a mounted Secret changes.
    pub(super) async fn credentials(&self) -> Result<Credentials, QuestionError> {
        let Some(path) = &self.config else {
            return Ok(Credentials::default());
        };
        let config = |error: String| QuestionError::Config(error);
        let text = tokio::fs::read(path).await;
        let text = text.map_err(|error| config(error.to_string()))?;
        let parsed = Credentials::parse(&text);
        parsed.map_err(|error: CredentialsError| config(error.to_string()))
    }

    /// Returns whether the Docker configuration names the registry of an image.
    pub(super) async fn names(&self, reference: &Reference) -> Result<bool, QuestionError> {
        Ok(self.credentials().await?.names(reference))
    }

    /// Digest of an image, or `None` if there is none.
    pub(super) async fn digest(
        &self,
        reference: &Reference,
    ) -> Result<Option<Digest>, QuestionError> {
        let ask = async {
            let credentials = self.credentials().await?;
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await;
            match self.client.head(reference, &credentials).await {
                Ok(digest) => Ok(Some(digest)),
                Err(RegistryError::NotFound { .. }) => Ok(None),
                Err(error) => Err(QuestionError::from(Arc::new(error.into()))),
            }
        };
        let ask = self.digests.try_get_with(reference.whole(), ask);
        let answer = timeout(TIMEOUT, ask).await;
        let answer = answer.map_err(|_| QuestionError::Timeout)?;
        answer.map_err(|error| QuestionError::clone(&error))
    }

    /// Describes an image; `None` if there is none.
    pub(super) async fn find(
        &self,
        reference: &Reference,
    ) -> Result<Option<Inspection>, QuestionError> {
        let Some(digest) = self.digest(reference).await? else {
            return Ok(None);
        };
        let pinned = reference.clone_with_digest(digest.to_string());
        let ask = async {
            let credentials = self.credentials().await?;
            let _permit = self.permits.acquire().await;
            let found = inspect(&self.client, &pinned, &credentials).await;
            found.map_err(|error| QuestionError::from(Arc::new(error)))
        };
        let key = (
            format!("{}/{}", reference.registry(), reference.repository()),
            digest,
        );
        let answer = timeout(TIMEOUT, self.images.try_get_with(key, ask)).await;
        let answer = answer.map_err(|_| QuestionError::Timeout)?;
        answer
            .map(Some)
            .map_err(|error| QuestionError::clone(&error))
    }

    /// Forgets what a reference meant, because it means something else now.
    pub(super) async fn forget(&self, reference: &Reference) {
        self.digests.invalidate(&reference.whole()).await;
    }
}

impl QuestionError {
    /// Returns whether the registry does not let the gateway see the image.
    pub(crate) fn is_denied(&self) -> bool {
        let denied = |error: &InspectError| {
            matches!(error, InspectError::Registry(RegistryError::Denied { .. }))
        };
        matches!(self, Self::Registry(error) if denied(error))
    }
}

/// Lives of cached digests.
struct DigestLife;

impl Expiry<String, Option<Digest>> for DigestLife {
    #[expect(clippy::disallowed_types, reason = "the cache's interface")]
    fn expire_after_create(
        &self,
        _: &String,
        digest: &Option<Digest>,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(if digest.is_some() {
            FOUND_FOR
        } else {
            MISSING_FOR
        })
    }
}

#[cfg(test)]
mod tests;
