//! Acceptance of builds: one per tenant and target. The name of the object derives from both, so
//! that `create` is also the check for a concurrent build, across any number of replicas.

use std::sync::Arc;
use std::time::Duration;

use crds::ImageBuild;
use crds::image_build::{BuildMode, BuildPhase, ImageBuildSpec, ImageBuildStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;
use shared::image_reference;
use shared::tenants::Tenant;
use tokio::time::{Instant, timeout};

use super::dockerfile::{self, Recognition, TemplateKind};
use super::form::BuildForm;
use super::{BuildError, Builds, UPLOAD_TIMEOUT};
use crate::sandboxes::SandboxError;

/// Image builds of one tenant, about 1 KiB each.
const MAX_BUILDS_PER_TENANT: usize = 5000;
/// Attempts to find or create. A lost attempt means that another caller replaced the build.
const MAX_ROUNDS: u32 = 4;

/// Time after which a build that another request has created is finished in its place.
const TAKEOVER_DELAY: Duration = Duration::from_secs(1);

/// Base image of a build, or the reason for which there is none.
struct Judgement {
    base: Option<String>,
    failure: Option<Failure>,
}

/// Cause of a failed build, with advice for the user of the client.
struct Failure {
    reason: &'static str,
    message: String,
}

impl Builds {
    /// Reads a form and accepts its build. Returns the id.
    pub(crate) async fn submit(
        &self,
        tenant: &Tenant,
        form: impl Future<Output = Result<BuildForm, BuildError>>,
    ) -> Result<String, BuildError> {
        let began = (Instant::now(), Timestamp::now());
        let submitted = self.submit_form(tenant, form, began.1).await;
        let (id, result) = match submitted {
            Ok((id, result)) => (Ok(id), result),
            Err(error) => (Err(error), "rejected"),
        };
        let mode = BuildMode::Alias.name();
        self.metrics
            .record_image_build(mode, result, began.0.elapsed());
        id
    }

    async fn submit_form(
        &self,
        tenant: &Tenant,
        form: impl Future<Output = Result<BuildForm, BuildError>>,
        began: Timestamp,
    ) -> Result<(String, &'static str), BuildError> {
        let reading = async {
            // The semaphore is never closed.
            let _permit = self.uploads.acquire().await;
            form.await
        };
        let form = timeout(UPLOAD_TIMEOUT, reading).await;
        let form = form.unwrap_or(Err(BuildError::Timeout))?;
        self.synced().await?;
        let judgement = self.judge(tenant, &form);
        let spec = self.spec(tenant, form, judgement.base.clone())?;
        for _ in 0..MAX_ROUNDS {
            let known = self.store.look_up(&tenant.name, &spec.target).await?;
            let Some(known) = known else {
                if self.index.count(&tenant.name) >= MAX_BUILDS_PER_TENANT {
                    let max = MAX_BUILDS_PER_TENANT;
                    return Err(BuildError::TooMany { max });
                }
                let Some(created) = self.store.create(spec.clone()).await? else {
                    continue;
                };
                return self.finish(&created, &judgement, began).await;
            };
            match known.phase() {
                BuildPhase::Failed => self.store.delete(&known).await?,
                BuildPhase::Succeeded => return Ok(self.reuse(&known, &spec)),
                // Another request is about to finish it, or its replica has ended.
                BuildPhase::Queued | BuildPhase::Running => {
                    let waited = self.wait_finished(known, TAKEOVER_DELAY).await;
                    if let Some(known) = waited.filter(|known| !known.is_finished()) {
                        return self.finish(&known, &judgement, began).await;
                    }
                }
            }
        }
        Err(SandboxError::Timeout.into())
    }

    /// Describes the build, with the references that the tenant may use.
    fn spec(
        &self,
        tenant: &Tenant,
        form: BuildForm,
        base: Option<String>,
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
            let parsed = image_reference::parse(reference);
            if !parsed.is_some_and(|parsed| self.is_own(tenant, parsed.repository)) {
                return Err(BuildError::ForeignReference {
                    reference: reference.clone(),
                    prefix: self.registry_prefix(tenant).to_owned(),
                });
            }
        }
        let digest = base.as_deref().and_then(image_reference::parse);
        Ok(ImageBuildSpec {
            tenant: tenant.name.clone(),
            base_digest: digest.and_then(|parsed| parsed.digest).map(str::to_owned),
            target,
            tags,
            base,
            context_digest: form.context.digest,
            mode: BuildMode::Alias,
        })
    }

    /// Finds the base image of a build.
    fn judge(&self, tenant: &Tenant, form: &BuildForm) -> Judgement {
        let (from, recognition) = dockerfile::recognize(&form.context.dockerfile);
        let Some(from) = from.filter(|from| image_reference::parse(from).is_some()) else {
            return Judgement::failed(None, "InvalidBase", INVALID_BASE.to_owned());
        };
        let named = Some(from.clone());
        match recognition {
            Recognition::ExtraDependencies => {
                Judgement::failed(named, "ExtraDependencies", EXTRA_DEPENDENCIES.to_owned())
            }
            Recognition::Unknown => {
                Judgement::failed(named, "UnknownDockerfile", UNKNOWN_DOCKERFILE.to_owned())
            }
            Recognition::Template(kind) => {
                let parent = self.index.by_reference(&tenant.name, &from);
                match parent.and_then(|parent| parent.runnable()) {
                    Some(base) => Judgement::base(base),
                    None if kind == TemplateKind::Scratch => Judgement::base(from),
                    None => {
                        let message = format!(
                            "{from}, from which the image is to be built, is not known here: start \
                             again, or set runtime_container_image to an existing image"
                        );
                        Judgement::failed(named, "UnknownParent", message)
                    }
                }
            }
        }
    }

    /// Writes the end of a build.
    async fn finish(
        &self,
        build: &ImageBuild,
        judgement: &Judgement,
        began: Timestamp,
    ) -> Result<(String, &'static str), BuildError> {
        let failure = judgement.failure.as_ref();
        let status = ImageBuildStatus {
            phase: failure.map_or(BuildPhase::Succeeded, |_| BuildPhase::Failed),
            digest: build.spec.base_digest.clone(),
            started_at: Some(Time(began)),
            finished_at: Some(Time(Timestamp::now())),
            reason: failure.map(|failure| failure.reason.to_owned()),
            message: failure.map(|failure| failure.message.clone()),
            last_used_at: None,
        };
        let finished = self.store.report(build, &json!(status)).await?;
        let result = if finished.is_usable() {
            "succeeded"
        } else {
            "failed"
        };
        Ok((build.name_any(), result))
    }

    fn reuse(&self, known: &Arc<ImageBuild>, spec: &ImageBuildSpec) -> (String, &'static str) {
        self.note_mismatch(known, spec);
        self.usage.record(known);
        (known.name_any(), "existing")
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

const INVALID_BASE: &str = "the Dockerfile does not begin with FROM and an image reference: set \
    runtime_container_image to an existing image";
const EXTRA_DEPENDENCIES: &str = "runtime_extra_deps cannot be installed here: leave it empty, or \
    set runtime_container_image to an image that has them";
const UNKNOWN_DOCKERFILE: &str = "the Dockerfile is not that of a known OpenHands release: use a \
    released version, or set runtime_container_image to an existing image";

impl Judgement {
    fn base(base: String) -> Self {
        Self {
            base: Some(base),
            failure: None,
        }
    }

    fn failed(base: Option<String>, reason: &'static str, message: String) -> Self {
        Self {
            base,
            failure: Some(Failure { reason, message }),
        }
    }
}

fn is_tagged(reference: &str) -> bool {
    let parsed = image_reference::parse(reference);
    parsed.is_some_and(|parsed| parsed.tag.is_some() && parsed.digest.is_none())
}
