//! Creates the owned objects of a Sandbox. Names are derived from the Sandbox; an existing object
//! of the same owner counts as created.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crds::contract::persistence::PersistenceLevel;
use crds::names;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::PostParams;

use super::error::ApplyError;
use crate::admission_search::AdmissionSearch;
use crate::context::Context;
use crate::facts::spec_revision::SpecRevision;
use crate::facts::{PodFacts, SPEC_ANNOTATION, WarmMatch, WarmSupply};
use crate::pools::claim as warm_claim;
use crate::reconcile::build::command::key_rotation;
use crate::reconcile::build::persistence::pod_persistence;
use crate::reconcile::build::pod::bind_to_node;
use crate::reconcile::build::{
    self, BuildContext, BuildError, PodParams, pod_owner, runtime_class,
};
use crate::reconcile::init_message::{self, InitTarget};
use crate::reconcile::observe::Observed;
use crate::snapshots::claim::is_kept;
use crate::snapshots::source::node_of_volume;
use shared::index::{Entry, Key};
use shared::kubernetes::api_messages;
use shared::kubernetes::client::with_timeout;
use shared::kubernetes::owned_objects::{
    CreateError, classify_error, create_owned, reject_terminating,
};
use shared::kubernetes::slim::SlimPod;

/// Input of the builders.
pub(super) fn build_context<'a>(context: &'a Context, observed: &'a Observed) -> BuildContext<'a> {
    let entry = &observed.entry;
    let class = runtime_class::of_pod(&entry.spec, &context.config, false);
    BuildContext {
        entry,
        config: &context.config,
        keys: &context.keys,
        url: &observed.url,
        deadlines: observed.deadlines,
        level: observed.level,
        pool: None,
        features: context.pod_features(class),
        source: observed.facts.source.volume(),
    }
}

/// Creates the workspace PVC.
pub(super) async fn claim(context: &Context, observed: &Observed) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    if let Some(claim) = build::volumes::claim(&build_context(context, observed))? {
        let (client, namespace) = (&context.client, &entry.key.namespace);
        let created = create_owned(client, namespace, &claim, &entry.uid).await;
        if let Err(CreateError::NameTaken { name, .. }) = &created
            && is_kept(&context.api(&entry.key), name).await?
        {
            return Err(ApplyError::ClaimKept(name.clone()));
        }
        reject_terminating::<PersistentVolumeClaim>(created?)?;
    }
    Ok(())
}

/// Creates the Pod, and then the environment Secret if the image's own entrypoint runs. Everything
/// is built first, so that an invalid spec creates neither.
pub(super) async fn pod(
    context: &Context,
    observed: &Observed,
    params: PodParams<'_>,
) -> Result<(), ApplyError> {
    let entry = &observed.entry;
    let build_context = build_context(context, observed);
    let rotation = key_rotation(&entry.spec);
    let secret = if entry.spec.command.is_some() {
        init_message::init(&build_context, init_target(rotation, false))?;
        None
    } else {
        let start = format!("{:x}", context.clock.now().as_millisecond());
        let name = names::environment_secret(&entry.key.name, &start);
        Some(environment_secret(&build_context, name, rotation)?)
    };
    let params = PodParams {
        secret: secret.as_ref(),
        missed_pool: match &observed.facts.warm {
            WarmSupply::None => None,
            WarmSupply::Ready(WarmMatch { pool, .. }) | WarmSupply::Exhausted { pool, .. } => {
                Some(pool)
            }
        },
        ..params
    };
    let created = create_admitted_pod(context, &build_context, params).await?;
    context.pods.apply(&created);
    let created = reject_terminating(created)?;
    match secret.zip(PodFacts::read(&created)) {
        Some((secret, pod)) => create_secret(context, &entry.key, &pod, secret).await,
        None => Ok(()),
    }
}

/// A Pod that does not exist yet, to validate the init message.
fn init_target(key_rotation: u32, was_warm: bool) -> InitTarget<'static> {
    InitTarget {
        key_rotation,
        was_warm,
        state_image: None,
        source: None,
    }
}

/// Claims a warm Pod, or creates one if there is none any more. Returns its name. `None` if the pool
/// makes its sandboxes wait or refuses them, which the next reconcile finds out.
pub(super) async fn claim_pod(
    context: &Context,
    observed: &Observed,
    warm: &WarmMatch,
    restarts: u32,
) -> Result<Option<String>, ApplyError> {
    let entry = &observed.entry;
    let rotation = key_rotation(&entry.spec);
    // An invalid spec consumes no warm Pod.
    init_message::init(
        &build_context(context, observed),
        init_target(rotation, true),
    )?;
    let claimed = warm_claim::claim(context, entry, warm, restarts).await?;
    if let Some(name) = claimed.and_then(|pod| pod.metadata.name) {
        return Ok(Some(name));
    }
    let pool = context.pools.get(&entry.key.sibling(&warm.pool));
    if pool.is_some_and(|pool| pool.max_wait() != Some(Duration::ZERO)) {
        context.sandbox_queue.add(entry.key.clone());
        return Ok(None);
    }
    claim(context, observed).await?;
    let params = PodParams {
        restarts,
        ..PodParams::default()
    };
    pod(context, observed, params).await?;
    Ok(Some(names::pod(&entry.key.name)))
}

/// Creates the environment Secret of a Pod that lacks it: the controller ended between the two.
pub(super) async fn missing_secret(
    context: &Context,
    observed: &Observed,
) -> Result<(), ApplyError> {
    let pod = observed.facts.pod.as_ref();
    let name = pod.and_then(|pod| pod.environment_secret.clone());
    let Some((pod, name)) = pod.zip(name) else {
        return Ok(());
    };
    let secret = environment_secret(&build_context(context, observed), name, pod.key_rotation)?;
    create_secret(context, &observed.entry.key, pod, secret).await
}

fn environment_secret(
    context: &BuildContext<'_>,
    name: String,
    rotation: u32,
) -> Result<Secret, ApplyError> {
    let environment = init_message::environment(context, rotation)?;
    Ok(build::environment_secret::secret(
        context,
        name,
        environment,
    )?)
}

/// Creates a Secret that the Pod owns, so that Kubernetes deletes it: the controller may neither
/// read nor delete Secrets.
async fn create_secret(
    context: &Context,
    sandbox: &Key,
    pod: &PodFacts,
    mut secret: Secret,
) -> Result<(), ApplyError> {
    secret.metadata.owner_references = Some(vec![pod_owner(&pod.name, &pod.uid)]);
    let params = PostParams {
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    let api = context.api::<Secret>(sandbox);
    match with_timeout(api.create(&params, &secret)).await {
        Err(error) if !error.is_already_exists() => Err(classify_error(error).into()),
        _ => Ok(()),
    }
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

/// Creates the Pod, if need be with the default runtime class, and with the highest persistence that
/// policies admit. Each failure changes the next attempt, so that there are at most five.
async fn create_admitted_pod(
    context: &Context,
    build_context: &BuildContext<'_>,
    mut params: PodParams<'_>,
) -> Result<SlimPod, ApplyError> {
    let entry = build_context.entry;
    let class = entry.spec.runtime_class_name.as_deref();
    let persisted = entry.status.persisted.as_ref();
    let has_state = persisted.is_some_and(|kept| kept.level > PersistenceLevel::Workspace);
    let source = entry
        .spec
        .source
        .as_ref()
        .filter(|_| build_context.source.is_some());
    let node = source.and_then(|source| node_of_volume(context, &entry.key, source));
    let mut search = if has_state {
        AdmissionSearch::from_the_top(&entry.key.namespace, class)
    } else {
        AdmissionSearch::new(context, &entry.key.namespace, class)
    };
    loop {
        let class = runtime_class::of_pod(&entry.spec, &context.config, params.default_class);
        let build_context = BuildContext {
            features: search.admitted(context.pod_features(class)),
            ..*build_context
        };
        let mut pod = build::pod::pod(&build_context, &params)?;
        if let Some(node) = &node {
            bind_to_node(&mut pod, node);
        }
        if params.created_in_pause.is_some() {
            check_keeps_state(&build_context)?;
        }
        match create_pod(context, entry, &pod).await {
            Ok(created) => {
                search.record(context);
                return Ok(created);
            }
            Err(error) if search.descend(&pod, &error) => {}
            Err(error) => {
                reject_unless_class_missing(context, &build_context, &params, error)?;
                params.default_class = true;
            }
        }
    }
}

/// Rejects a Pod that would keep less than the pause has kept: its supervisor removes saved processes
/// when it starts, and the resume may get a Pod that restores them.
fn check_keeps_state(context: &BuildContext<'_>) -> Result<(), BuildError> {
    let (entry, features) = (context.entry, context.features);
    let own = pod_persistence(entry, context.level, context.config, features);
    let own = own.ok().flatten().map(|persistence| persistence.level);
    let kept = entry.status.persisted.as_ref().map(|kept| kept.level);
    if own.unwrap_or_default() < kept.unwrap_or_default() {
        let fault = "a Pod that waits for the resume would keep less than the pause has kept";
        return Err(BuildError::at("spec.persistence", fault));
    }
    Ok(())
}

/// Succeeds if the Pod is to have the default runtime class because the cluster lacks the requested
/// one, unless the installation is strict (`docs/specs/runtime-api.md`, section 7, rule 21).
fn reject_unless_class_missing(
    context: &Context,
    build_context: &BuildContext<'_>,
    params: &PodParams<'_>,
    error: CreateError,
) -> Result<(), ApplyError> {
    // Text of the admission plug-in `RuntimeClass`.
    let is_missing = |class: &&str| match &error {
        CreateError::Forbidden(message) => api_messages::is_runtime_class_missing(message, class),
        _ => false,
    };
    let class = runtime_class::requested(&build_context.entry.spec, &context.config);
    let class = class.filter(|_| !params.default_class);
    let Some(class) = class.filter(is_missing) else {
        return Err(error.into());
    };
    if context.config.classes.strict {
        return Err(ApplyError::NoRuntimeClass(class.to_owned()));
    }
    Ok(())
}
