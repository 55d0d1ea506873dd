//! Status of full builds. Every write enters the queue at once.

use builder::BuiltImage;
use crds::ImageBuild;
use crds::image_build::{BuildPhase, ImageBuildStatus};
use crds::names::CONTROLLER_FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared::image_builds::reason;
use shared::kubernetes::client::{CallError, with_timeout};
use shared::kubernetes::watch::WatchSink as _;

use super::failure::Failure;
use crate::context::Context;

/// Writes that a Pod is made for a build.
pub(super) async fn begin(context: &Context, build: &ImageBuild) -> Result<(), CallError> {
    let known = build.status.clone().unwrap_or_default();
    let status = ImageBuildStatus {
        phase: BuildPhase::Running,
        attempts: Some(known.attempts.unwrap_or_default() + 1),
        started_at: known.started_at.or(Some(Time(context.clock.now()))),
        ..ImageBuildStatus::default()
    };
    // Not over an end that this process has not seen.
    let version = build.metadata.resource_version.as_deref();
    write(context, build, version, &status).await
}

/// Writes the step of a running build, until its next write.
pub(super) async fn write_step(
    context: &Context,
    build: &ImageBuild,
    step: String,
) -> Result<(), CallError> {
    let status = ImageBuildStatus {
        phase: BuildPhase::Running,
        message: Some(step),
        ..ImageBuildStatus::default()
    };
    // Not over an end that this process has not seen.
    let version = build.metadata.resource_version.as_deref();
    write(context, build, version, &status).await
}

/// Writes the end of a build.
pub(super) async fn finish(
    context: &Context,
    build: &ImageBuild,
    made: &Result<BuiltImage, Failure>,
) -> Result<(), CallError> {
    let image = made.as_ref().ok();
    let failure = made.as_ref().err();
    let status = ImageBuildStatus {
        phase: match failure {
            None => BuildPhase::Succeeded,
            Some(_) => BuildPhase::Failed,
        },
        digest: image.map(|image| image.digest.clone()),
        size_bytes: image.and_then(|image| i64::try_from(image.size_bytes).ok()),
        finished_at: Some(Time(context.clock.now())),
        reason: failure.map(|failure| failure.reason.to_owned()),
        message: failure.map(|failure| failure.message.clone()),
        ..ImageBuildStatus::default()
    };
    write(context, build, None, &status).await?;
    let result = if failure.is_none() {
        "succeeded"
    } else {
        "failed"
    };
    let created_at = build.creation_timestamp().map(|at| at.0);
    let took = created_at.map(|at| context.clock.now().duration_since(at));
    let took = took
        .and_then(|took| took.try_into().ok())
        .unwrap_or_default();
    context.metrics.record_image_build(result, took);
    Ok(())
}

/// Ends a build that has waited for too long.
pub(super) async fn expire(context: &Context, build: &ImageBuild) {
    let text = "too many image builds were waiting; start again";
    let expired = Err(Failure::new(reason::QUEUE_EXPIRED, text));
    if let Err(error) = finish(context, build, &expired).await {
        tracing::warn!(name = build.name_any(), %error, "cannot end an expired image build");
    }
}

/// Fails if the build was deleted or replaced, or has another version than this.
async fn write(
    context: &Context,
    build: &ImageBuild,
    version: Option<&str>,
    status: &ImageBuildStatus,
) -> Result<(), CallError> {
    let namespace = build.namespace().unwrap_or_default();
    let api = Api::<ImageBuild>::namespaced(context.client.clone(), &namespace);
    let mut metadata = json!({"uid": build.metadata.uid});
    if let Some(version) = version {
        metadata["resourceVersion"] = version.into();
    }
    let mut patch = json!({"metadata": metadata, "status": status});
    // Removes the step.
    patch["status"]["message"] = json!(status.message);
    let params = PatchParams::apply(CONTROLLER_FIELD_MANAGER);
    let (name, patch) = (build.name_any(), Patch::Merge(patch));
    let written = with_timeout(api.patch_status(&name, &params, &patch)).await?;
    context.builds.apply(written);
    Ok(())
}
