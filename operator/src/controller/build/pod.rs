//! The Pod of a sandbox.
//!
//! A supervised one starts dormant: what it runs, and every secret, arrives by a control call. One
//! that runs its image's own entrypoint takes its environment from a Secret. So nothing secret
//! stands here.

use std::collections::BTreeMap;

use crds::names;
use k8s_openapi::api::core::v1::{LocalObjectReference, Pod, PodSpec, Secret, Toleration};

use super::command::key_rotation;
use super::container::{self, container};
use super::{Blueprint, BuildError, injection, merge, metadata, policy, profile, volumes};
use crate::controller::facts::{KEY_ROTATION_ANNOTATION, NOTE_ANNOTATION, RESTARTS_ANNOTATION};
use crate::runtime_class;

/// How long a Pod stays bound to a node that does not answer, in seconds.
const LOST_NODE_SECONDS: i64 = 30;

/// What one Pod of a sandbox has that the next may not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Order<'a> {
    /// How often the command was started again before this Pod.
    pub restarts: u32,
    /// The cluster lacks the runtime class of the spec: the default takes its place.
    pub default_class: bool,
    /// The Secret that the image's own entrypoint takes its environment from.
    pub secret: Option<&'a Secret>,
}

/// Builds the Pod.
pub fn pod(blueprint: &Blueprint<'_>, order: &Order<'_>) -> Result<Pod, BuildError> {
    let entry = blueprint.entry;
    let mut meta = metadata(entry, names::pod(&entry.key.name));
    meta.annotations = Some(notes(blueprint, order)).filter(|notes| !notes.is_empty());
    let mut pod = Pod {
        metadata: meta,
        spec: Some(pod_spec(blueprint, order)?),
        status: None,
    };
    if let Some(template) = &entry.spec.pod_template {
        let patched = merge::patched(&pod, template)?;
        policy::check(&pod, &patched, blueprint.config.pods.privileged_templates)?;
        pod = patched;
    }
    if let Some(spec) = &pod.spec {
        policy::secrets::check(spec, &entry.key.name)?;
    }
    if let Some(secret) = order.secret {
        container::give_way(&mut pod, secret);
    }
    Ok(pod)
}

/// The runtime class that the spec asks for, by its real name.
pub fn asked_class<'a>(blueprint: &Blueprint<'a>) -> Option<&'a str> {
    let asked = blueprint.entry.spec.runtime_class_name.as_deref()?;
    let gvisor = blueprint.config.classes.gvisor.as_deref();
    Some(runtime_class::real_name(asked, gvisor))
}

fn pod_spec(blueprint: &Blueprint<'_>, order: &Order<'_>) -> Result<PodSpec, BuildError> {
    let spec = &*blueprint.entry.spec;
    let settings = &blueprint.config.pods;
    let class = asked_class(blueprint).filter(|_| !order.default_class);
    let default_class = || blueprint.config.defaults.runtime_class_name.clone();
    Ok(PodSpec {
        init_containers: injection::init_container(blueprint).map(|c| vec![c]),
        containers: vec![container(blueprint, order)?],
        volumes: Some(volumes::volumes(blueprint)),
        runtime_class_name: class.map(str::to_owned).or_else(default_class),
        security_context: Some(profile::pod(spec)),
        restart_policy: Some("Always".into()),
        termination_grace_period_seconds: Some(settings.grace_seconds),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        host_users: settings.user_namespaces.then_some(false),
        image_pull_secrets: pull_secrets(blueprint),
        node_selector: Some(settings.node_selector.clone()).filter(|s| !s.is_empty()),
        affinity: settings.affinity.clone(),
        tolerations: Some(tolerations(&settings.tolerations)),
        priority_class_name: settings.priority_class.clone(),
        ..PodSpec::default()
    })
}

/// What the operator will want to know of the Pod, and cannot tell from the Sandbox.
fn notes(blueprint: &Blueprint<'_>, order: &Order<'_>) -> BTreeMap<String, String> {
    let mut notes = BTreeMap::new();
    if order.restarts > 0 {
        notes.insert(RESTARTS_ANNOTATION.to_owned(), order.restarts.to_string());
    }
    let rotation = key_rotation(&blueprint.entry.spec);
    if rotation > 0 {
        notes.insert(KEY_ROTATION_ANNOTATION.to_owned(), rotation.to_string());
    }
    if let Some(class) = asked_class(blueprint).filter(|_| order.default_class) {
        let note = format!("the runtime class {class} is not installed; the default is used");
        notes.insert(NOTE_ANNOTATION.to_owned(), note);
    }
    notes
}

fn pull_secrets(blueprint: &Blueprint<'_>) -> Option<Vec<LocalObjectReference>> {
    let names = &blueprint.config.pods.pull_secrets;
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    (!names.is_empty()).then(|| names.iter().map(reference).collect())
}

fn tolerations(own: &[Toleration]) -> Vec<Toleration> {
    let mut all = ["not-ready", "unreachable"].map(leaves_lost_node).to_vec();
    all.extend_from_slice(own);
    all
}

/// A sandbox can be replaced elsewhere at once; Kubernetes would wait five minutes.
fn leaves_lost_node(state: &str) -> Toleration {
    Toleration {
        key: Some(format!("node.kubernetes.io/{state}")),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: Some(LOST_NODE_SECONDS),
        value: None,
    }
}
