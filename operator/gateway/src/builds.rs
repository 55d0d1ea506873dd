//! Image builds of V0 clients that name no image (`docs/builds.md`).
//!
//! Sandboxes get the executor at their start, so an image that a client wants built only has to be
//! another name of its base image. An `ImageBuild` records it; the gateway answers from an index of
//! them, and starts the base image. If the parent of an image is in the tenant's registry, the image
//! is made there instead.

mod context;
mod dockerfile;
mod error;
mod form;
mod full;
pub mod index;
mod judgement;
mod layer;
pub(crate) mod logs;
mod make;
mod outcome;
mod registries;
mod snapshot_image;
mod snapshot_layer;
mod store;
mod submit;
mod upload_queue;
mod usage;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use images::Reference;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use shared::image_builds::ImageBuilds;
use shared::image_reference;
use shared::kubernetes::watch;
use shared::metrics::GatewayMetrics;
use shared::tenants::Tenant;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::GatewayConfig;
use crate::supervisors::Supervisors;
use index::BuildIndex;
use logs::FollowedLogs;
use store::BuildStore;
use upload_queue::UploadQueue;
use usage::UsageRecorder;

pub(crate) use error::BuildError;
pub(crate) use form::BuildForm;
pub use registries::{Registries, RegistryArgs};
pub(crate) use snapshot_image::SnapshotImage;
pub(crate) use submit::MAX_BUILDS_PER_TENANT;

/// Bytes of the form of a build, most of them its context.
pub(crate) const MAX_FORM_BYTES: usize = 256 << 20;
/// Time for the whole form to arrive.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(2);
/// Time that a request waits for the first complete list after the process started.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a status request waits for the end of a build. Clients wait for 60 seconds, and poll
/// again only 30 seconds after a response.
const STATUS_TIMEOUT: Duration = Duration::from_secs(50);
/// Images of snapshots that are made at once. Each takes up to 1 GiB of disk: its layer, and one that
/// is copied.
const MAX_SNAPSHOT_IMAGES: usize = 1;
/// Age at which a build that is not finished was interrupted: its replica has ended.
const MAX_UNFINISHED: SignedDuration = SignedDuration::from_secs(150);
/// The same of a full build, which the controller ends, also in the queue.
const MAX_UNFINISHED_FULL: SignedDuration = SignedDuration::from_mins(35);
/// Time for the ends of interrupted builds to be written.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Image builds of one namespace.
#[derive(Debug)]
pub(crate) struct Builds {
    config: Arc<GatewayConfig>,
    pub(crate) index: Arc<BuildIndex>,
    store: BuildStore,
    usage: UsageRecorder,
    uploads: UploadQueue,
    snapshot_images: Arc<Semaphore>,
    logs: Arc<FollowedLogs>,
    metrics: Arc<GatewayMetrics>,
    supervisors: Arc<dyn Supervisors>,
    /// Builds and logs in the background, and their end with the process.
    running: TaskTracker,
    stopping: CancellationToken,
}

/// Knowledge of an image.
#[derive(Debug)]
pub(crate) enum ImageState {
    Missing,
    Exists {
        /// RFC 3339; empty if it is not known.
        time: String,
        /// 0 if it is not known.
        size: u64,
    },
}

impl Builds {
    pub(crate) fn new(
        client: &kube::Client,
        config: Arc<GatewayConfig>,
        metrics: Arc<GatewayMetrics>,
        supervisors: Arc<dyn Supervisors>,
    ) -> Self {
        let index = Arc::<BuildIndex>::default();
        let store = BuildStore::new(client, &config.namespace, index.clone());
        Self {
            usage: UsageRecorder::new(store.clone()),
            logs: Arc::default(),
            uploads: UploadQueue::default(),
            snapshot_images: Arc::new(Semaphore::new(MAX_SNAPSHOT_IMAGES)),
            running: TaskTracker::new(),
            stopping: CancellationToken::new(),
            store,
            index,
            config,
            metrics,
            supervisors,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.config.image_builds().is_on()
    }

    /// Builds that are made for a tenant.
    pub(crate) fn policy(&self, tenant: &Tenant) -> ImageBuilds {
        let own = tenant.image_builds.unwrap_or(ImageBuilds::Full);
        own.min(self.config.image_builds())
    }

    /// Number of builds of a tenant.
    pub(crate) fn count(&self, tenant: &Tenant) -> usize {
        self.index.count(&tenant.name)
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

    fn registries(&self) -> Option<Arc<Registries>> {
        self.config.registries.clone()
    }

    /// Returns whether a reference is in the tenant's repository of runtime images.
    fn is_own(&self, tenant: &Tenant, repository: &str) -> bool {
        let path = repository.strip_prefix(self.registry_prefix(tenant));
        path == Some("/runtime")
    }

    /// Returns whether the registry can have runtime images for a tenant. Others could put theirs
    /// into a repository that is not the tenant's own.
    pub(crate) fn has_registry(&self, tenant: &Tenant) -> bool {
        let owner = self.config.registry_owner.as_ref();
        let is_owner = tenant.registry_prefix.is_some() || owner == Some(&tenant.name);
        let is_allowed = self.policy(tenant) >= ImageBuilds::Append;
        is_owner && is_allowed && self.config.registries.is_some()
    }

    /// Returns whether the registry may be asked for a runtime image of the tenant.
    fn is_in_registry(&self, tenant: &Tenant, reference: &str) -> bool {
        let parsed = image_reference::parse(reference);
        let is_own = parsed.is_some_and(|parsed| self.is_own(tenant, parsed.repository));
        is_own && self.has_registry(tenant)
    }

    /// Describes the image of a reference. Images that the gateway cannot know count as existing:
    /// the nodes find out.
    pub(crate) async fn state(
        &self,
        tenant: &Tenant,
        reference: &str,
    ) -> Result<ImageState, BuildError> {
        let parsed = image_reference::parse(reference);
        let (Some(parsed), Ok(image)) = (parsed, reference.parse::<Reference>()) else {
            return Ok(ImageState::Missing);
        };
        if !self.policy(tenant).is_on() {
            return Ok(ImageState::unknown());
        }
        let is_own = self.is_own(tenant, parsed.repository);
        if is_own {
            if let Some(build) = self.find(tenant, reference).await? {
                return Ok(ImageState::of(&build));
            }
            if !self.has_registry(tenant) {
                return Ok(ImageState::Missing);
            }
        }
        let Some(registries) = self.registries() else {
            return Ok(ImageState::unknown());
        };
        let found = match registries.names(&image).await {
            Ok(false) if !is_own => return Ok(ImageState::unknown()),
            Ok(_) => registries.find(&image).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(None) => Ok(ImageState::Missing),
            Ok(Some(found)) => Ok(ImageState::Exists {
                time: found.created,
                size: found.size,
            }),
            // A false "no" would make the client build in vain.
            Err(error) if is_own => Err(BuildError::Registry(error)),
            // Many registries say so of an image that does not exist.
            Err(error) if error.is_denied() => Ok(ImageState::Missing),
            Err(error) => {
                tracing::info!(image = reference, %error, "registry does not answer");
                Ok(ImageState::unknown())
            }
        }
    }

    /// Image to run in place of a runtime image of the tenant: that of its build, or the same by
    /// its digest.
    pub(crate) async fn runnable(
        &self,
        tenant: &Tenant,
        reference: &str,
    ) -> Result<Option<String>, BuildError> {
        let parsed = image_reference::parse(reference);
        let Some(parsed) = parsed.filter(|parsed| self.is_own(tenant, parsed.repository)) else {
            return Ok(None);
        };
        if !self.policy(tenant).is_on() {
            return Ok(None);
        }
        if let Some(build) = self.find(tenant, reference).await? {
            return Ok(build.runnable());
        }
        let registries = self.registries().filter(|_| self.has_registry(tenant));
        let image = reference.parse::<Reference>().ok();
        let Some((registries, image)) = registries.zip(image) else {
            return Ok(None);
        };
        let digest = match parsed.digest {
            Some(_) => None,
            // The node says why there is no such image.
            None => registries.digest(&image).await.ok().flatten(),
        };
        Ok(digest.map(|digest| format!("{reference}@{digest}")))
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

    /// Returns a build of the tenant, finished if it finishes in time; or `None` in place of one that
    /// is deleted meanwhile.
    pub(crate) async fn finished(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<Option<Arc<ImageBuild>>>, BuildError> {
        self.synced().await?;
        match self.store.find_by_id(&tenant.name, id).await? {
            Some(build) => Ok(Some(self.wait_finished(build, STATUS_TIMEOUT).await)),
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

    /// Ends the builds in the background, and writes that they were interrupted.
    pub(crate) async fn stop(&self) {
        self.stopping.cancel();
        self.running.close();
        if timeout(STOP_TIMEOUT, self.running.wait()).await.is_err() {
            tracing::warn!("image builds did not stop in time");
        }
    }

    /// Returns the newest builds of a tenant, at most `limit`, and the number of all.
    pub(crate) async fn newest(
        &self,
        tenant: &Tenant,
        limit: usize,
    ) -> Result<(Vec<Arc<ImageBuild>>, usize), BuildError> {
        self.synced().await?;
        let mut builds = self.index.of_tenant(&tenant.name);
        let total = builds.len();
        builds.sort_by_key(|build| {
            let created_at = build.creation_timestamp().map(|time| time.0);
            (Reverse(created_at), build.name_any())
        });
        builds.truncate(limit);
        Ok((builds, total))
    }

    async fn synced(&self) -> Result<(), BuildError> {
        if self.index.wait_synced(SYNC_TIMEOUT).await {
            return Ok(());
        }
        Err(BuildError::NotSynced)
    }
}

impl ImageState {
    fn of(build: &ImageBuild) -> Self {
        let status = build.status.as_ref();
        let time = status.and_then(|status| status.finished_at.as_ref());
        let size = status.and_then(|status| status.size_bytes);
        Self::Exists {
            time: time.map(|time| time.0.to_string()).unwrap_or_default(),
            size: size.and_then(|size| size.try_into().ok()).unwrap_or(0),
        }
    }

    fn unknown() -> Self {
        Self::Exists {
            time: String::new(),
            size: 0,
        }
    }
}

/// Returns whether a build will not finish any more.
pub(crate) fn is_interrupted(build: &ImageBuild, now: Timestamp) -> bool {
    let created_at = build.creation_timestamp().map(|time| time.0);
    let status = build.status.as_ref();
    let limit = match status.and_then(|status| status.context.as_ref()) {
        Some(_) => MAX_UNFINISHED_FULL,
        None => MAX_UNFINISHED,
    };
    let is_old = created_at.is_none_or(|at| now.duration_since(at) > limit);
    is_old && !build.is_finished()
}
