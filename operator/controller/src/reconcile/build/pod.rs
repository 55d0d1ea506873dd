//! The Pod of a sandbox.
//!
//! A supervised Pod starts dormant: command and secrets arrive by a control call. A Pod that runs
//! the entrypoint of its image takes its environment from a Secret. So the Pod itself holds no
//! secret.

use std::collections::BTreeMap;

use crds::names;
use k8s_openapi::api::core::v1::{
    LocalObjectReference, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration,
};

use super::command::{key_rotation, plugins};
use super::container::{self, container};
use super::{
    BuildContext, BuildError, PodParams, init_container, pod_template, runtime_class,
    security_profile, template_policy, volumes,
};
use crate::config::Injection;
use crate::facts::{
    ENVIRONMENT_ANNOTATION, EXECUTOR_ANNOTATION, IDENTITY_ANNOTATION, IMAGE_VOLUME,
    KEY_ROTATION_ANNOTATION, NOTE_ANNOTATION, PAUSE_ANNOTATION, PERSISTENCE_ANNOTATION,
    PodIdentity, REJECTED_PERSISTENCE_ANNOTATION, RESTARTS_ANNOTATION, SNAPSHOT_ANNOTATION,
};
use crate::pools::idle_resources;
use shared::resources::requirements;

/// Seconds that a Pod stays bound to a node that does not report.
const NODE_LOST_TOLERATION_SECONDS: i64 = 30;

/// Builds the Pod.
pub fn pod(context: &BuildContext<'_>, params: &PodParams<'_>) -> Result<Pod, BuildError> {
    let native = context.config.native_executor;
    plugins::check(&context.entry.spec, native, context.pool.is_some())?;
    if context.source.is_some() && context.persistence().is_none() {
        let fault = "the Pod keeps the workspace alone, and cannot begin with a snapshot";
        return Err(BuildError::at("spec.source", fault));
    }
    let pod = pod_as_chosen(context, params)?;
    let features = match &pod.spec {
        Some(spec) => context.features.fitting(spec),
        None => context.features,
    };
    if features == context.features {
        return Ok(pod);
    }
    let fitting = BuildContext {
        features,
        ..*context
    };
    pod_as_chosen(&fitting, params)
}

fn pod_as_chosen(context: &BuildContext<'_>, params: &PodParams<'_>) -> Result<Pod, BuildError> {
    let entry = context.entry;
    let mut meta = context.metadata(names::pod(&entry.key.name));
    if let (Some(labels), Some(pool)) = (&mut meta.labels, &entry.spec.pool) {
        labels.insert(names::POOL_LABEL.to_owned(), pool.clone());
    }
    meta.annotations = Some(pod_annotations(context, params)).filter(|notes| !notes.is_empty());
    let mut pod = Pod {
        metadata: meta,
        spec: Some(pod_spec(context, params)?),
        status: None,
    };
    if let Some(template) = &entry.spec.pod_template {
        let merged = pod_template::apply_template(&pod, template)?;
        template_policy::check(&pod, &merged, context.config)?;
        pod = merged;
    }
    if params.is_small {
        let full = requirements(&entry.spec, &context.config.defaults.resources)?;
        idle_resources::lower_requests(&mut pod, &full);
    }
    if let Some(spec) = &pod.spec {
        template_policy::reserved_secrets::check(spec, secret_name(params).unwrap_or_default())?;
    }
    if let Some(secret) = params.secret {
        container::drop_overridden_variables(&mut pod, secret);
    }
    Ok(pod)
}

fn pod_spec(context: &BuildContext<'_>, params: &PodParams<'_>) -> Result<PodSpec, BuildError> {
    let spec = &*context.entry.spec;
    let settings = &context.config.pods;
    let class = runtime_class::requested(spec, context.config).filter(|_| !params.default_class);
    let default_class = || context.config.defaults.runtime_class_name.clone();
    Ok(PodSpec {
        init_containers: init_container::init_container(context).map(|c| vec![c]),
        containers: vec![container(context, params)?],
        volumes: Some(volumes::volumes(context)),
        runtime_class_name: class.map(str::to_owned).or_else(default_class),
        security_context: Some(security_profile::pod(spec)),
        restart_policy: Some("Always".into()),
        termination_grace_period_seconds: Some(settings.grace_seconds),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        host_users: context.features.host_users(),
        image_pull_secrets: pull_secrets(context),
        node_selector: Some(settings.node_selector.clone()).filter(|s| !s.is_empty()),
        affinity: settings.affinity.clone(),
        tolerations: Some(tolerations(&settings.tolerations)),
        priority_class_name: settings.priority_class.clone(),
        ..PodSpec::default()
    })
}

/// Lets a Pod run on this node only.
pub(crate) fn bind_to_node(pod: &mut Pod, node: &str) {
    let affinity = &mut pod.spec.get_or_insert_default().affinity;
    let of_nodes = &mut affinity.get_or_insert_default().node_affinity;
    let of_nodes = of_nodes.get_or_insert_default();
    let required = &mut of_nodes.required_during_scheduling_ignored_during_execution;
    let terms = &mut required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_fields
            .get_or_insert_default()
            .push(NodeSelectorRequirement {
                key: "metadata.name".into(),
                operator: "In".into(),
                values: Some(vec![node.to_owned()]),
            });
    }
}

/// Name of the environment Secret.
fn secret_name<'a>(params: &PodParams<'a>) -> Option<&'a str> {
    params.secret?.metadata.name.as_deref()
}

/// Annotations with facts about the Pod that the Sandbox does not record.
fn pod_annotations(context: &BuildContext<'_>, params: &PodParams<'_>) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    if context.is_supervised() {
        let identity = match context.pool {
            Some(_) => PodIdentity::Pod,
            None => PodIdentity::Sandbox,
        };
        notes.insert(IDENTITY_ANNOTATION.to_owned(), identity.as_str().to_owned());
    }
    if let Some(name) = secret_name(params) {
        notes.insert(ENVIRONMENT_ANNOTATION.to_owned(), name.to_owned());
    }
    if params.restarts > 0 {
        notes.insert(RESTARTS_ANNOTATION.to_owned(), params.restarts.to_string());
    }
    if let Some(paused_at) = params.created_in_pause {
        notes.insert(PAUSE_ANNOTATION.to_owned(), paused_at.to_string());
    }
    if context.is_supervised() && context.features.injection == Injection::Auto {
        notes.insert(EXECUTOR_ANNOTATION.to_owned(), IMAGE_VOLUME.to_owned());
    }
    if let Some(text) = context
        .persistence()
        .and_then(|persistence| serde_json::to_string(&persistence).ok())
    {
        notes.insert(PERSISTENCE_ANNOTATION.to_owned(), text);
    }
    if let Some(text) = context
        .source
        .and_then(|source| serde_json::to_string(&source.snapshot).ok())
    {
        notes.insert(SNAPSHOT_ANNOTATION.to_owned(), text);
    }
    if let Some(text) = context
        .rejected_persistence()
        .and_then(|rejected| serde_json::to_string(&rejected).ok())
    {
        notes.insert(REJECTED_PERSISTENCE_ANNOTATION.to_owned(), text);
    }
    let rotation = key_rotation(&context.entry.spec);
    if rotation > 0 {
        notes.insert(KEY_ROTATION_ANNOTATION.to_owned(), rotation.to_string());
    }
    let class = runtime_class::requested(&context.entry.spec, context.config);
    let class = class.filter(|_| params.default_class);
    let deviations = [
        class.map(|it| format!("the runtime class {it} is not installed; the default is used")),
        params
            .missed_pool
            .map(|it| format!("no warm Pod of the pool {it} was ready")),
    ];
    let deviations: Vec<_> = deviations.into_iter().flatten().collect();
    if !deviations.is_empty() {
        notes.insert(NOTE_ANNOTATION.to_owned(), deviations.join("; "));
    }
    notes
}

fn pull_secrets(context: &BuildContext<'_>) -> Option<Vec<LocalObjectReference>> {
    let names = &context.config.pods.pull_secrets;
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    (!names.is_empty()).then(|| names.iter().map(reference).collect())
}

fn tolerations(own: &[Toleration]) -> Vec<Toleration> {
    let mut all = ["not-ready", "unreachable"]
        .map(node_lost_toleration)
        .to_vec();
    all.extend_from_slice(own);
    all
}

/// Toleration that lets a sandbox be replaced after 30 s; Kubernetes' default is five minutes.
fn node_lost_toleration(state: &str) -> Toleration {
    Toleration {
        key: Some(format!("node.kubernetes.io/{state}")),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: Some(NODE_LOST_TOLERATION_SECONDS),
        value: None,
    }
}
