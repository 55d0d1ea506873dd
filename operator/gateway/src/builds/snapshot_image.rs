//! Images of snapshots: the changed files of a sandbox are one more layer on the image that it ran.

use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use crds::contract::persistence::LayerRequest;
use crds::image_build::{BuildMode, ImageBuildSpec};
use images::{AppendError, Digest, Parent, Platform, Reference, RegistryError};
use jiff::Timestamp;
use kube::ResourceExt as _;
use shared::image_builds::reason::REGISTRY_ERROR;
use shared::image_reference;
use shared::index::Entry;
use shared::tenants::Tenant;
use tokio::time::{Instant, timeout};

use super::make::{CONTEXT_LABEL, Task, labels, not_appended};
use super::outcome::{Failure, Made};
use super::registries::Registries;
use super::snapshot_layer::{MAX_LAYER_BYTES, SnapshotLayer};
use super::submit::{Claim, is_tagged};
use super::{BuildError, Builds};

/// Time that a request waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Image that is to be made of a snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotImage {
    pub(crate) target: String,
    /// Image that the sandbox ran.
    pub(crate) base: String,
    /// The running sandbox, on whose volume the snapshot is.
    pub(crate) source: Arc<Entry>,
    pub(crate) request: LayerRequest,
}

impl Builds {
    /// Accepts the image of a snapshot. Returns the id of its build.
    pub(crate) async fn submit_snapshot(
        self: &Arc<Self>,
        tenant: &Tenant,
        image: SnapshotImage,
    ) -> Result<String, BuildError> {
        let began = (Instant::now(), Timestamp::now());
        let spec = self.snapshot_spec(tenant, &image)?;
        // One that is known, also one that is being made, waits for no turn.
        if let Some(known) = self.find_live(&spec).await? {
            return self.reuse_image(&known, spec, began.0);
        }
        let turn = self.snapshot_images.clone().acquire_owned();
        let turn = timeout(TURN_TIMEOUT, turn).await;
        // The semaphore is never closed.
        let turn = turn.map_err(|_| BuildError::Busy)?;
        let turn = turn.map_err(|_| BuildError::Panicked)?;
        self.synced().await?;
        let build = match self.claim(&spec).await? {
            Claim::Known(known) => return self.reuse_image(&known, spec, began.0),
            Claim::New(build) => build,
        };
        let id = build.name_any();
        let Some(registries) = self.registries() else {
            let failure = Failure::new(REGISTRY_ERROR, &"no registry is configured");
            self.finish(&build, Err(failure), began.1).await?;
            return Ok(id);
        };
        let task = Task {
            build,
            files: None,
            snapshot: Some(SnapshotLayer {
                source: image.source,
                request: image.request,
                is_of_tenant: self.is_of_tenant(tenant, &image.base),
                turn,
            }),
            dockerfile: String::new(),
            is_foreign_parent: false,
            began,
        };
        self.running.spawn(self.clone().make(registries, task));
        Ok(id)
    }

    fn reuse_image(
        &self,
        known: &Arc<ImageBuild>,
        spec: ImageBuildSpec,
        began: Instant,
    ) -> Result<String, BuildError> {
        if known.spec.context_digest != spec.context_digest {
            return Err(BuildError::Taken(spec.target));
        }
        self.reuse(known, &spec);
        let (mode, took) = (spec.mode.name(), began.elapsed());
        self.metrics.record_image_build(mode, "existing", took);
        Ok(known.name_any())
    }

    fn snapshot_spec(
        &self,
        tenant: &Tenant,
        image: &SnapshotImage,
    ) -> Result<ImageBuildSpec, BuildError> {
        let target = &image.target;
        if !is_tagged(target) {
            return Err(BuildError::IllegalTarget(target.clone()));
        }
        self.check_own(tenant, target)?;
        let digest = image_reference::parse(&image.base).and_then(|base| base.digest);
        let digest = digest.filter(|digest| digest.parse::<Digest>().is_ok());
        let content = format!("snapshot/{}", image.request.id);
        Ok(ImageBuildSpec {
            tenant: tenant.name.clone(),
            target: target.clone(),
            tags: Vec::new(),
            base: Some(image.base.clone()),
            from: None,
            base_digest: digest.map(str::to_owned),
            context_digest: Digest::of(content.as_bytes()).to_string(),
            mode: BuildMode::Append,
        })
    }

    /// Makes the image of a snapshot.
    pub(super) async fn append_snapshot(
        &self,
        registries: &Registries,
        build: &ImageBuild,
        base: &Reference,
        snapshot: SnapshotLayer,
    ) -> Result<Made, Failure> {
        let spec = &build.spec;
        let target = spec.target.parse::<Reference>();
        let target = target.map_err(|error| Failure::new("InvalidTarget", &error))?;
        if let Some(found) = registries.find(&target).await? {
            return if is_same(registries, &target, &spec.context_digest).await? {
                Ok(found.into())
            } else {
                let taken = BuildError::Taken(spec.target.clone());
                Err(Failure::new("TargetExists", &taken))
            };
        }
        if !snapshot.is_of_tenant && !registries.names(base).await? {
            return Err(unknown_base(base, "the gateway does not know its registry"));
        }
        let credentials = registries.credentials().await?;
        let client = &registries.client;
        let layer = snapshot.open(&*self.supervisors).await?;
        let platform = Platform::linux(&layer.architecture);
        let parent = Parent::load_platform(client, base, &credentials, &platform).await;
        let parent = parent.map_err(|error| match error {
            AppendError::Registry(RegistryError::NotFound { .. }) => {
                unknown_base(base, "its registry does not have it")
            }
            error => not_appended(spec, &error),
        })?;
        let (layer, file) = layer.write().await?;
        let parent = parent.carry(&target, MAX_LAYER_BYTES, client, &credentials);
        let parent = parent.await.map_err(|error| not_appended(spec, &error))?;
        let addition = images::Addition {
            layer: &layer,
            file: file.path(),
            labels: &labels(spec),
        };
        let targets = [target];
        let appended = parent
            .append(addition, &targets, client, &credentials)
            .await;
        let appended = appended.map_err(|error| not_appended(spec, &error))?;
        registries.forget(&targets[0]).await;
        Ok(Made {
            digest: Some(appended.digest.to_string()),
            size_bytes: i64::try_from(appended.size).ok(),
        })
    }
}

/// Returns whether an image in the registry was made of the same snapshot, whose build was deleted
/// since.
async fn is_same(
    registries: &Registries,
    target: &Reference,
    context_digest: &str,
) -> Result<bool, Failure> {
    let credentials = registries.credentials().await?;
    let found = Parent::load(&registries.client, target, &credentials).await;
    let found = found.map_err(|error| Failure::new(REGISTRY_ERROR, &error))?;
    Ok(found.label(CONTEXT_LABEL) == Some(context_digest))
}

fn unknown_base(base: &Reference, cause: &str) -> Failure {
    let message = format!("{}, the image of the sandbox: {cause}", base.whole());
    Failure::new("UnknownBase", &message)
}
