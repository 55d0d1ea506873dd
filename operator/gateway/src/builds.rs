//! Image builds of V0 clients that name no image (`docs/builds.md`).
//!
//! Sandboxes get the executor at their start, so an image that a client wants built only has to be
//! another name of its base image. An `ImageBuild` records it; the gateway answers from an index of
//! them, and starts the base image.

mod context;
mod dockerfile;
mod error;
mod form;
pub mod index;
mod store;
mod submit;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use kube::ResourceExt as _;
use shared::image_reference;
use shared::kubernetes::watch;
use shared::metrics::GatewayMetrics;
use shared::tenants::Tenant;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::GatewayConfig;
use index::BuildIndex;
use store::BuildStore;
use usage::UsageRecorder;

pub(crate) use error::BuildError;
pub(crate) use form::BuildForm;
/// Bytes of the form of a build, most of them its context.
pub(crate) const MAX_FORM_BYTES: usize = 256 << 20;
/// Time for the whole form to arrive.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(2);
/// Time that a request waits for the first complete list after the process started.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a status request waits for the end of a build. Clients wait for 60 seconds, and poll
/// again only 30 seconds after a response.
const STATUS_TIMEOUT: Duration = Duration::from_secs(50);
/// Build contexts that are read at once, each with a thread and less than 1 MiB.
const MAX_CONCURRENT_UPLOADS: usize = 16;

/// Image builds of one namespace.
#[derive(Debug)]
pub(crate) struct Builds {
    config: Arc<GatewayConfig>,
    pub(crate) index: Arc<BuildIndex>,
    store: BuildStore,
    usage: UsageRecorder,
    uploads: Semaphore,
    metrics: Arc<GatewayMetrics>,
}

impl Builds {
    pub(crate) fn new(
        client: &kube::Client,
        config: Arc<GatewayConfig>,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        let index = Arc::<BuildIndex>::default();
        let store = BuildStore::new(client, &config.namespace, index.clone());
        Self {
            usage: UsageRecorder::new(store.clone()),
            uploads: Semaphore::new(MAX_CONCURRENT_UPLOADS),
            store,
            index,
            config,
            metrics,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.config.image_builds().is_on()
    }

    /// Keeps the index up to date until `shutdown`.
    pub(crate) async fn follow(&self, shutdown: CancellationToken) {
        if !self.is_on() {
            return;
        }
        let api = watch::api(&self.store.client(), Some(&self.config.namespace));
        let (index, vitals) = (self.index.clone(), self.config.vitals.clone());
        watch::run::<ImageBuild>(api, None, index, vitals, shutdown).await;
    }

    /// Image repository of a tenant's clients, to which they append `/runtime`.
    pub(crate) fn registry_prefix<'a>(&'a self, tenant: &'a Tenant) -> &'a str {
        let own = tenant.registry_prefix.as_deref();
        let prefix = own.unwrap_or(&self.config.settings.registry_prefix);
        prefix.trim_end_matches('/')
    }

    /// Returns whether a reference is in the tenant's repository of runtime images.
    fn is_own(&self, tenant: &Tenant, repository: &str) -> bool {
        let path = repository.strip_prefix(self.registry_prefix(tenant));
        path == Some("/runtime")
    }

    /// Answers for a reference; `None` for images that the gateway knows nothing of.
    pub(crate) async fn exists(
        &self,
        tenant: &Tenant,
        reference: &str,
    ) -> Result<Option<bool>, BuildError> {
        let Some(parsed) = image_reference::parse(reference) else {
            return Ok(Some(false));
        };
        if !self.is_own(tenant, parsed.repository) {
            return Ok(None);
        }
        Ok(Some(self.find(tenant, reference).await?.is_some()))
    }

    /// Image to run in place of a reference of the tenant that was built.
    pub(crate) async fn runnable(
        &self,
        tenant: &Tenant,
        reference: &str,
    ) -> Result<Option<String>, BuildError> {
        let parsed = image_reference::parse(reference);
        let is_own = parsed.is_some_and(|parsed| self.is_own(tenant, parsed.repository));
        if !self.is_on() || !is_own {
            return Ok(None);
        }
        let build = self.find(tenant, reference).await?;
        Ok(build.and_then(|build| build.runnable()))
    }

    /// Finds the succeeded build of a reference, and records its use. Another replica may have made
    /// it a moment ago, so an unknown target is looked up.
    async fn find(
        &self,
        tenant: &Tenant,
        reference: &str,
    ) -> Result<Option<Arc<ImageBuild>>, BuildError> {
        self.synced().await?;
        let mut found = self.index.by_reference(&tenant.name, reference);
        if found.is_none() {
            let looked_up = self.store.look_up(&tenant.name, reference).await?;
            found = looked_up.filter(|build| build.is_usable());
        }
        if let Some(build) = &found {
            self.usage.record(build);
        }
        Ok(found)
    }

    /// Returns a build of the tenant, finished if it finishes in time.
    pub(crate) async fn finished(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Arc<ImageBuild>>, BuildError> {
        self.synced().await?;
        match self.store.find_by_id(&tenant.name, id).await? {
            Some(build) => Ok(self.wait_finished(build, STATUS_TIMEOUT).await),
            None => Ok(None),
        }
    }

    /// Waits until a build has finished, at most for `limit`. `None` if it is deleted.
    async fn wait_finished(
        &self,
        build: Arc<ImageBuild>,
        limit: Duration,
    ) -> Option<Arc<ImageBuild>> {
        let mut changes = self.index.changes();
        let (tenant, name) = (build.spec.tenant.clone(), build.name_any());
        let mut build = Some(build);
        let finish = async {
            while build.as_ref().is_some_and(|build| !build.is_finished()) {
                build = self.index.by_name(&tenant, &name);
                if build.as_ref().is_some_and(|build| !build.is_finished()) {
                    // The sender lives in the index, so this cannot fail.
                    let _ = changes.changed().await;
                }
            }
        };
        let _ = timeout(limit, finish).await;
        build
    }

    async fn synced(&self) -> Result<(), BuildError> {
        if self.index.wait_synced(SYNC_TIMEOUT).await {
            return Ok(());
        }
        Err(BuildError::NotSynced)
    }
}
