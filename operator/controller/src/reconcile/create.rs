//! Creates the owned objects of a Sandbox. Names are derived from the Sandbox; an existing object
//! of the same owner counts as created.

#[cfg(test)]
mod tests;

use crds::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt as _;

use super::error::ApplyError;
use crate::context::Context;
use crate::facts::SPEC_ANNOTATION;
use crate::facts::spec_revision::SpecRevision;
use crate::reconcile::build::command::key_rotation;
use crate::reconcile::build::pod::requested_runtime_class;
use crate::reconcile::build::{self, BuildContext, PodParams};
use crate::reconcile::init_message;
use crate::reconcile::observe::Observed;
use shared::index::Entry;
use shared::kubernetes::api_messages;
use shared::kubernetes::owned_objects::{CreateError, create_owned, delete, reject_terminating};
use shared::kubernetes::slim::SlimPod;

/// Input of the builders.
pub(super) fn build_context<'a>(context: &'a Context, observed: &'a Observed) -> BuildContext<'a> {
    BuildContext {
        entry: &observed.entry,
        config: &context.config,
        keys: &context.keys,
        url: &observed.url,
        deadlines: observed.deadlines,
    }
}

/// Creates the workspace PVC.
pub(super) async fn claim(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    if let Some(claim) = build::volumes::claim(&build_context(context, observed))? {
        let (client, namespace) = (&context.client, &entry.key.namespace);
        let claim: PersistentVolumeClaim =
            create_owned(client, namespace, &claim, &entry.uid).await?;
        reject_terminating(claim)?;
    }
    Ok(())
}

/// Creates the Pod, and before it the environment Secret if the image's own entrypoint runs.
/// Everything is built first, so that an invalid spec creates neither.
pub(super) async fn pod(
    context: &Context,
    observed: &Observed,
    restarts: u32,
) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let build_context = build_context(context, observed);
    let rotation = key_rotation(&entry.spec);
    let secret = if entry.spec.command.is_some() {
        init_message::init(&build_context, rotation)?;
        None
    } else {
        let environment = init_message::environment(&build_context, rotation)?;
        Some(build::environment_secret::secret(
            &build_context,
            environment,
        )?)
    };
    let params = PodParams {
        restarts,
        default_class: false,
        secret: secret.as_ref(),
    };
    let pod = build::pod::pod(&build_context, &params)?;
    if let Some(secret) = &secret {
        ensure_secret(context, entry, secret).await?;
    }
    let created = match create_pod(context, entry, &pod).await {
        Err(error) => retry_without_runtime_class(context, &build_context, &params, error).await?,
        Ok(created) => created,
    };
    context.pods.apply(&created);
    reject_terminating(created)?;
    Ok(())
}

/// Creates the Secret. One of an earlier start with other data is replaced: there is no Pod that
/// uses it.
async fn ensure_secret(
    context: &Context,
    entry: &Entry,
    secret: &Secret,
) -> Result<(), ApplyError> {
    let (client, namespace) = (&context.client, &entry.key.namespace);
    let found: Secret =
        reject_terminating(create_owned(client, namespace, secret, &entry.uid).await?)?;
    if found.data == secret.data {
        return Ok(());
    }
    let name = names::environment_secret(&entry.key.name);
    delete(
        &context.api::<Secret>(&entry.key),
        &name,
        found.uid().as_deref(),
        None,
    )
    .await?;
    let made: Secret = create_owned(client, namespace, secret, &entry.uid).await?;
    reject_terminating(made)?;
    Ok(())
}

async fn create_pod(context: &Context, entry: &Entry, pod: &Pod) -> Result<SlimPod, CreateError> {
    let mut pod = pod.clone();
    let revision = SpecRevision::new(entry.generation, &entry.spec);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SPEC_ANNOTATION.into(), revision.to_string());
    if let Some(spec) = &mut pod.spec {
        // Without a grace period the Pod object would be gone before its containers have ended.
        let grace = &mut spec.termination_grace_period_seconds;
        *grace = grace.map(|seconds| seconds.max(1));
    }
    create_owned(&context.client, &entry.key.namespace, &pod, &entry.uid).await
}

/// Retries with the default runtime class if the cluster lacks the requested one, unless the
/// installation is strict (`docs/specs/runtime-api.md`, section 7, rule 21).
async fn retry_without_runtime_class(
    context: &Context,
    build_context: &BuildContext<'_>,
    params: &PodParams<'_>,
    error: CreateError,
) -> Result<SlimPod, ApplyError> {
    // Text of the admission plug-in `RuntimeClass`.
    let is_missing = |class: &&str| match &error {
        CreateError::Forbidden(message) => api_messages::is_runtime_class_missing(message, class),
        _ => false,
    };
    let Some(class) = requested_runtime_class(build_context).filter(is_missing) else {
        return Err(error.into());
    };
    if context.config.classes.strict {
        return Err(ApplyError::NoRuntimeClass(class.to_owned()));
    }
    let params = PodParams {
        default_class: true,
        ..*params
    };
    let pod = build::pod::pod(build_context, &params)?;
    Ok(create_pod(context, build_context.entry, &pod).await?)
}
