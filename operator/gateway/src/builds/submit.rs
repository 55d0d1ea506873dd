//! Acceptance of builds: one per tenant and target. The name of the object derives from both, so
//! that `create` is also the check for a concurrent build, across any number of replicas.

use std::sync::Arc;

use crds::ImageBuild;
use crds::image_build::{BuildMode, BuildPhase, ImageBuildSpec, ImageBuildStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;
use shared::image_reference;
use shared::tenants::Tenant;
use tokio::time::{Instant, timeout};

use super::form::BuildForm;
use super::judgement::Judgement;
use super::make::Task;
use super::outcome::{Failure, Made};
use super::{BuildError, Builds, UPLOAD_TIMEOUT, is_interrupted};
use crate::sandboxes::SandboxError;

/// Image builds of one tenant, about 1 KiB each.
pub(crate) const MAX_BUILDS_PER_TENANT: usize = 5000;
/// Attempts to find or create. A lost attempt means that another caller replaced the build.
const MAX_ROUNDS: u32 = 4;
/// Characters of the message of a failure.
const MAX_MESSAGE: usize = 1000;

/// The one build of a target.
#[derive(Debug)]
pub(super) enum Claim {
    Known(Arc<ImageBuild>),
    /// Created by this call, which has to make the image.
    New(Arc<ImageBuild>),
}

impl Builds {
    /// Reads a form and accepts its build. Returns the id.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        tenant: &Tenant,
        form: impl Future<Output = Result<BuildForm, BuildError>>,
    ) -> Result<String, BuildError> {
        let began = (Instant::now(), Timestamp::now());
        let submitted = self.submit_form(tenant, form, began).await;
        let (id, ended) = match submitted {
            Ok((id, ended)) => (Ok(id), ended),
            Err(error) => (Err(error), Some((BuildMode::Alias, "rejected"))),
        };
        if let Some((mode, result)) = ended {
            let took = began.0.elapsed();
            self.metrics.record_image_build(mode.name(), result, took);
        }
        id
    }

    /// Returns the id, and the result unless it follows in the background.
    async fn submit_form(
        self: &Arc<Self>,
        tenant: &Tenant,
        form: impl Future<Output = Result<BuildForm, BuildError>>,
        began: (Instant, Timestamp),
    ) -> Result<(String, Option<(BuildMode, &'static str)>), BuildError> {
        let permit = timeout(UPLOAD_TIMEOUT, self.uploads.acquire(&tenant.name)).await;
        let permit = permit.map_err(|_| BuildError::Busy)?;
        let permit = permit.ok_or(BuildError::Panicked)?;
        let read = timeout(UPLOAD_TIMEOUT, form).await;
        let mut form = read.unwrap_or(Err(BuildError::Timeout))?;
        self.synced().await?;
        let judgement = self.judge(tenant, &form);
        let files = form.context.files.take();
        let dockerfile = std::mem::take(&mut form.context.dockerfile);
        let spec = self.spec(tenant, form, &judgement)?;
        let build = match self.claim(&spec).await? {
            Claim::Known(known) => return Ok(self.reuse(&known, &spec)),
            Claim::New(build) => build,
        };
        let (id, mode) = (build.name_any(), spec.mode);
        let registries = self.registries().filter(|_| judgement.failure.is_none());
        let Some(registries) = registries else {
            let outcome = judgement.failure.map_or(Ok(Made::default()), Err);
            let result = self.finish(&build, outcome, began.1).await?;
            return Ok((id, Some((mode, result))));
        };
        let task = Task {
            build,
            files: files
                .filter(|_| mode != BuildMode::Alias)
                .map(|files| (files, permit)),
            snapshot: None,
            dockerfile,
            is_foreign_parent: judgement.is_foreign_parent,
            began,
        };
        self.running.spawn(self.clone().make(registries, task));
        Ok((id, None))
    }

    /// Finds the build of a target that has been made or is being made.
    pub(super) async fn find_live(
        &self,
        spec: &ImageBuildSpec,
    ) -> Result<Option<Arc<ImageBuild>>, BuildError> {
        let known = self.store.look_up(&spec.tenant, &spec.target).await?;
        let now = Timestamp::now();
        Ok(known.filter(|it| it.phase() != BuildPhase::Failed && !is_interrupted(it, now)))
    }

    /// Finds the build of a target, or creates it.
    pub(super) async fn claim(&self, spec: &ImageBuildSpec) -> Result<Claim, BuildError> {
        for _ in 0..MAX_ROUNDS {
            if let Some(known) = self.store.look_up(&spec.tenant, &spec.target).await? {
                if known.phase() == BuildPhase::Failed || is_interrupted(&known, Timestamp::now()) {
                    self.store.delete(&known).await?;
                    continue;
                }
                return Ok(Claim::Known(known));
            }
            if self.index.count(&spec.tenant) >= MAX_BUILDS_PER_TENANT {
                let max = MAX_BUILDS_PER_TENANT;
                return Err(BuildError::TooMany { max });
            }
            if let Some(build) = self.store.create(spec.clone()).await? {
                return Ok(Claim::New(build));
            }
        }
        Err(SandboxError::Timeout.into())
    }

    /// Checks that a reference is in the tenant's repository of runtime images.
    pub(super) fn check_own(&self, tenant: &Tenant, reference: &str) -> Result<(), BuildError> {
        let parsed = image_reference::parse(reference);
        if parsed.is_some_and(|parsed| self.is_own(tenant, parsed.repository)) {
            return Ok(());
        }
        Err(BuildError::ForeignReference {
            reference: reference.to_owned(),
            prefix: self.registry_prefix(tenant).to_owned(),
        })
    }

    /// Describes the build, with the references that the tenant may use.
    fn spec(
        &self,
        tenant: &Tenant,
        form: BuildForm,
        judgement: &Judgement,
    ) -> Result<ImageBuildSpec, BuildError> {
        let target = form.target;
        if !is_tagged(&target) {
            return Err(BuildError::IllegalTarget(target));
        }
        // Clients make tags that no registry accepts, for example of a base image with a digest.
        let mut tags: Vec<_> = form.tags.into_iter().filter(|tag| is_tagged(tag)).collect();
        // A tag stays with its first build, as the client's choice of a parent expects.
        let is_new = |tag: &str| self.index.by_reference(&tenant.name, tag).is_none();
        tags.retain(|tag| *tag != target && is_new(tag));
        for reference in tags.iter().chain([&target]) {
            self.check_own(tenant, reference)?;
        }
        let base = judgement.base.clone();
        let digest = base.as_deref().and_then(image_reference::parse);
        Ok(ImageBuildSpec {
            tenant: tenant.name.clone(),
            base_digest: digest.and_then(|parsed| parsed.digest).map(str::to_owned),
            target,
            tags,
            base,
            from: judgement.from.clone(),
            context_digest: form.context.digest,
            mode: judgement.mode,
        })
    }

    /// Writes the end of a build. Returns its result, for the metrics.
    pub(super) async fn finish(
        &self,
        build: &ImageBuild,
        made: Result<Made, Failure>,
        began: Timestamp,
    ) -> Result<&'static str, BuildError> {
        let (made, failure) = match made {
            Ok(made) => (made, None),
            Err(failure) => (Made::default(), Some(failure)),
        };
        let status = ImageBuildStatus {
            phase: match &failure {
                None => BuildPhase::Succeeded,
                Some(_) => BuildPhase::Failed,
            },
            digest: made.digest.or_else(|| build.spec.base_digest.clone()),
            size_bytes: made.size_bytes,
            started_at: Some(Time(began)),
            finished_at: Some(Time(Timestamp::now())),
            reason: failure.as_ref().map(|failure| failure.reason.to_owned()),
            message: failure.map(|failure| failure.message.chars().take(MAX_MESSAGE).collect()),
            ..ImageBuildStatus::default()
        };
        let finished = self.store.report(build, &json!(status)).await?;
        Ok(if finished.is_usable() {
            "succeeded"
        } else {
            "failed"
        })
    }

    pub(super) fn reuse(
        &self,
        known: &Arc<ImageBuild>,
        spec: &ImageBuildSpec,
    ) -> (String, Option<(BuildMode, &'static str)>) {
        self.note_mismatch(known, spec);
        if known.is_usable() {
            self.usage.record(known);
        }
        (known.name_any(), Some((known.spec.mode, "existing")))
    }

    /// Notes that the target was built from another context: the first one wins, as in a registry.
    fn note_mismatch(&self, known: &ImageBuild, spec: &ImageBuildSpec) {
        if known.spec.context_digest != spec.context_digest {
            self.metrics.image_build_mismatches.inc();
            tracing::info!(
                target = spec.target,
                tenant = spec.tenant,
                "the image exists, built from another context"
            );
        }
    }
}

pub(super) fn is_tagged(reference: &str) -> bool {
    let parsed = image_reference::parse(reference);
    parsed.is_some_and(|parsed| parsed.tag.is_some() && parsed.digest.is_none())
}
