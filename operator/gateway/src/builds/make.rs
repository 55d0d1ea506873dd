//! Work on accepted builds that need a registry, in the background: clients ask for the result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use crds::image_build::{BuildMode, ImageBuildSpec};
use images::{Addition, AppendError, Layer, Owner, Parent, Reference, RegistryError};
use jiff::Timestamp;
use kube::ResourceExt as _;
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::Builds;
use super::context::ContextFiles;
use super::judgement::unknown_parent;
use super::layer::{self, LayerError};
use super::outcome::{Failure, Made};
use super::registries::Registries;
use super::snapshot_layer::SnapshotLayer;
use super::upload_queue::UploadPermit;
use shared::image_builds::reason::{DEADLINE_EXCEEDED, DISK_ERROR, INTERRUPTED, REGISTRY_ERROR};

/// Time of one build.
pub(super) const DEADLINE: Duration = Duration::from_mins(2);
/// Label of a runtime image with the ids of its user `openhands`, as `UID:GID`; it cannot be read
/// from the image without its layers.
const OWNER_LABEL: &str = "openhands.dev/owner";
const DEFAULT_OWNER: Owner = Owner {
    uid: 1000,
    gid: 1000,
};
pub(super) const CONTEXT_LABEL: &str = "openhands.dev/context-digest";
pub(super) const TENANT_LABEL: &str = "openhands.dev/tenant";

/// A build to make.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) build: Arc<ImageBuild>,
    /// Files for a layer, with what bounds their number on disk.
    pub(super) files: Option<(ContextFiles, UploadPermit)>,
    /// Snapshot whose changed files are the layer.
    pub(super) snapshot: Option<SnapshotLayer>,
    /// Instructions of a full build.
    pub(super) dockerfile: String,
    /// The base image has to be in the registry.
    pub(super) is_foreign_parent: bool,
    pub(super) began: (Instant, Timestamp),
}

impl Builds {
    /// Makes an image and writes the end of its build.
    pub(super) async fn make(self: Arc<Self>, registries: Arc<Registries>, mut task: Task) {
        let making = Box::pin(timeout(DEADLINE, self.make_image(&registries, &mut task)));
        let made = match self.stopping.run_until_cancelled(making).await {
            // The controller ends it.
            Some(Ok(Ok(None))) => return,
            Some(Ok(made)) => made.map(Option::unwrap_or_default),
            Some(Err(_)) => Err(Failure::new(
                DEADLINE_EXCEEDED,
                &format!("the build took longer than {} s", DEADLINE.as_secs()),
            )),
            None => {
                let text = "the gateway was stopped during the build; start again";
                Err(Failure::new(INTERRUPTED, &text))
            }
        };
        if let Err(failure) = &made {
            let (target, reason) = (&task.build.spec.target, failure.reason);
            tracing::info!(target, reason, message = failure.message, "build failed");
        }
        let result = match self.finish(&task.build, made, task.began.1).await {
            Ok(result) => result,
            Err(error) => {
                let name = task.build.name_any();
                tracing::warn!(name, %error, "cannot write the end of an image build");
                "unknown"
            }
        };
        let took = task.began.0.elapsed();
        let name = task.build.spec.mode.name();
        self.metrics.record_image_build(name, result, took);
    }

    /// Returns `None` if the controller makes the image.
    async fn make_image(
        &self,
        registries: &Registries,
        task: &mut Task,
    ) -> Result<Option<Made>, Failure> {
        if task.build.spec.mode == BuildMode::Full {
            return self.hand_over(registries, task).await;
        }
        let made = self.make_here(registries, task).await;
        made.map(Some)
    }

    async fn make_here(&self, registries: &Registries, task: &mut Task) -> Result<Made, Failure> {
        let base = task.build.spec.base.as_deref().unwrap_or_default();
        let parsed = base.parse::<Reference>();
        let base =
            parsed.map_err(|error| Failure::new("InvalidBase", &format!("{base}: {error}")))?;
        if let Some((files, _permit)) = task.files.take() {
            return self.append(registries, &task.build, &base, files).await;
        }
        if let Some(snapshot) = task.snapshot.take() {
            let making = self.append_snapshot(registries, &task.build, &base, snapshot);
            return Box::pin(making).await;
        }
        let found = match registries.names(&base).await {
            Ok(false) if !task.is_foreign_parent => return Ok(Made::default()),
            Ok(_) => registries.find(&base).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(Some(found)) => Ok(found.into()),
            Ok(None) if task.is_foreign_parent => {
                let message = unknown_parent(&base.whole());
                Err(Failure::new("UnknownParent", &message))
            }
            Ok(None) => {
                let message = format!("the registry has no image {}", base.whole());
                Err(Failure::new("UnknownBase", &message))
            }
            Err(error) if task.is_foreign_parent => Err(Failure::new(REGISTRY_ERROR, &error)),
            // The nodes may have the image, or be let in.
            Err(error) => {
                tracing::info!(base = base.whole(), %error, "base image without its digest");
                Ok(Made::default())
            }
        }
    }

    async fn append(
        &self,
        registries: &Registries,
        build: &ImageBuild,
        parent: &Reference,
        files: ContextFiles,
    ) -> Result<Made, Failure> {
        let targets = build.references().map(str::parse::<Reference>);
        let targets: Result<Vec<_>, _> = targets.collect();
        let targets = targets.map_err(|error| Failure::new("InvalidTarget", &error))?;
        // The first image of a name keeps it.
        if let Some(found) = registries.find(&targets[0]).await? {
            return Ok(found.into());
        }
        let credentials = registries.credentials().await?;
        let (client, spec) = (&registries.client, &build.spec);
        let parent = Parent::load(client, parent, &credentials).await;
        let parent = parent.map_err(|error| not_appended(spec, &error))?;
        let owner = parent.label(OWNER_LABEL).and_then(parse_owner);
        let (layer, file) = write_layer(files, owner.unwrap_or(DEFAULT_OWNER)).await?;
        let labels = labels(spec);
        let addition = Addition {
            layer: &layer,
            file: file.path(),
            labels: &labels,
        };
        let appended = parent
            .append(addition, &targets, client, &credentials)
            .await
            .map_err(|error| not_appended(spec, &error))?;
        for target in &targets {
            registries.forget(target).await;
        }
        Ok(Made {
            digest: Some(appended.digest.to_string()),
            size_bytes: i64::try_from(appended.size).ok(),
        })
    }
}

/// Compresses a layer into a file, which is deleted with its handle.
async fn write_layer(files: ContextFiles, owner: Owner) -> Result<(Layer, NamedTempFile), Failure> {
    let write = move || {
        let file = NamedTempFile::new()?;
        let layer = layer::write(&files, owner, file.path())?;
        Ok((layer, file))
    };
    let written = spawn_blocking(write).await;
    let written = written.map_err(|_| Failure::new(INTERRUPTED, &"internal error"))?;
    written.map_err(|error: LayerError| {
        let reason = match error {
            LayerError::Disk(_) => DISK_ERROR,
            _ => "InvalidContext",
        };
        Failure::new(reason, &error)
    })
}

/// Labels of an image that was made here.
pub(super) fn labels(spec: &ImageBuildSpec) -> BTreeMap<String, String> {
    BTreeMap::from([
        (CONTEXT_LABEL.to_owned(), spec.context_digest.clone()),
        (TENANT_LABEL.to_owned(), spec.tenant.clone()),
    ])
}

fn parse_owner(label: &str) -> Option<Owner> {
    let (uid, gid) = label.split_once(':')?;
    Some(Owner {
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
    })
}

pub(super) fn not_appended(spec: &ImageBuildSpec, error: &AppendError) -> Failure {
    let parent = spec.base.as_deref().unwrap_or_default();
    match error {
        AppendError::Registry(RegistryError::NotFound { .. }) => {
            Failure::new("UnknownParent", &unknown_parent(parent))
        }
        AppendError::Registry(error) => Failure::new(REGISTRY_ERROR, error),
        error => Failure::new("InvalidParent", &format!("{parent}: {error}")),
    }
}
