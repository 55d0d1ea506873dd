//! The Pod of a sandbox.
//!
//! A supervised one gets the executor binary through an init container and starts dormant: what it
//! runs, and every secret, arrives by a control call, so nothing of that stands here.

use std::collections::BTreeMap;

use crds::contract::{path, variable};
use crds::names;
use crds::sandbox::{EnvVar as SpecVar, Port, PullPolicy, SandboxSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, EnvVarSource,
    ObjectFieldSelector, PersistentVolumeClaimVolumeSource, Pod, PodSpec, ResourceRequirements,
    SecurityContext, Toleration, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::profile::Profile;
use super::{Blueprint, BuildError, merge, metadata, profile, resources};
use crate::controller::facts::RESTARTS_ANNOTATION;
use crate::urls::DEFAULT_PORTS;

/// Where the workspace is if the spec does not say.
pub const WORKSPACE: &str = "/workspace";
/// Volume of the executor binary.
const BIN: &str = "sandbox-bin";
/// Volume of the supervisor's state.
const STATE: &str = "sandbox-state";
/// Volume of the workspace.
const WORK: &str = "workspace";
/// Time that a command has to end, in seconds.
const GRACE_SECONDS: i64 = 10;
/// How long a Pod stays bound to a node that does not answer, in seconds.
const LOST_NODE_SECONDS: i64 = 30;
/// User of the init container: anybody but root.
const NOBODY: i64 = 65534;

/// Builds the Pod. `restarts` is how often the command was started again before it.
pub fn pod(blueprint: &Blueprint<'_>, restarts: u32) -> Result<Pod, BuildError> {
    let entry = blueprint.entry;
    let mut meta = metadata(entry, names::pod(&entry.key.name));
    if restarts > 0 {
        let count = (RESTARTS_ANNOTATION.to_owned(), restarts.to_string());
        meta.annotations = Some(BTreeMap::from([count]));
    }
    let pod = Pod {
        metadata: meta,
        spec: Some(pod_spec(blueprint)?),
        status: None,
    };
    match &entry.spec.pod_template {
        Some(template) => merge::patched(&pod, template),
        None => Ok(pod),
    }
}

fn pod_spec(blueprint: &Blueprint<'_>) -> Result<PodSpec, BuildError> {
    let spec = &*blueprint.entry.spec;
    let supervised = spec.command.is_some();
    let defaults = &blueprint.config.defaults;
    Ok(PodSpec {
        init_containers: supervised.then(|| vec![installer(&blueprint.config.executor_image)]),
        containers: vec![container(blueprint, supervised)?],
        volumes: Some(volumes(blueprint, supervised)),
        runtime_class_name: spec
            .runtime_class_name
            .clone()
            .or_else(|| defaults.runtime_class_name.clone()),
        security_context: Some(profile::pod(spec)),
        restart_policy: Some("Always".into()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        tolerations: Some(["not-ready", "unreachable"].map(leaves_lost_node).to_vec()),
        ..PodSpec::default()
    })
}

/// Copies the executor binary to where the sandbox's container finds it.
fn installer(image: &str) -> Container {
    Container {
        name: "executor".into(),
        image: Some(image.to_owned()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(
            ["/sandbox-executor", "install", path::BIN_DIR]
                .map(Into::into)
                .to_vec(),
        ),
        resources: Some(small()),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".into()]),
                add: None,
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            run_as_user: Some(NOBODY),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mount(BIN, path::BIN_DIR)]),
        ..Container::default()
    }
}

fn small() -> ResourceRequirements {
    let amounts = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    ResourceRequirements {
        requests: amounts("10m", "16Mi"),
        limits: amounts("1", "64Mi"),
        claims: None,
    }
}

fn container(blueprint: &Blueprint<'_>, supervised: bool) -> Result<Container, BuildError> {
    let spec = &*blueprint.entry.spec;
    let supervise = || [path::EXECUTOR, "supervise"].map(Into::into).to_vec();
    let mut env = Vec::new();
    if supervised {
        env.push(field(variable::POD_UID, "metadata.uid"));
        env.push(field(variable::POD_IP, "status.podIP"));
        env.push(plain(variable::CONTROL_KEY, blueprint.control_key));
    }
    env.extend(own_variables(spec)?);
    Ok(Container {
        name: names::CONTAINER.into(),
        image: Some(spec.image.clone().ok_or(BuildError::NoImage)?),
        image_pull_policy: spec.image_pull_policy.map(|p| pull_policy(p).to_owned()),
        command: supervised.then(supervise),
        // The supervisor has to start anywhere; it makes the command's directory itself.
        working_dir: spec.working_dir.clone().filter(|_| !supervised),
        env: Some(env).filter(|env| !env.is_empty()),
        ports: Some(ports(spec)),
        resources: Some(resources::requirements(spec, &blueprint.config.defaults)?),
        security_context: Some(Profile::of(spec, blueprint.config).container()),
        volume_mounts: Some(mounts(spec, supervised)),
        ..Container::default()
    })
}

fn own_variables(spec: &SandboxSpec) -> Result<Vec<EnvVar>, BuildError> {
    let read = |(at, var): (usize, &SpecVar)| {
        let source = var
            .value_from
            .clone()
            .map(serde_json::from_value::<EnvVarSource>);
        let path = || format!("spec.env[{at}].valueFrom");
        Ok(EnvVar {
            name: var.name.clone(),
            value: var.value.clone(),
            value_from: source.transpose().map_err(|e| BuildError::at(path(), e))?,
        })
    };
    spec.env.iter().enumerate().map(read).collect()
}

fn ports(spec: &SandboxSpec) -> Vec<ContainerPort> {
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        ..ContainerPort::default()
    };
    if spec.ports.is_empty() {
        return DEFAULT_PORTS
            .iter()
            .map(|(name, number)| port(name, *number))
            .collect();
    }
    spec.ports
        .iter()
        .map(|Port { name, port: number }| port(name, *number))
        .collect()
}

fn volumes(blueprint: &Blueprint<'_>, supervised: bool) -> Vec<Volume> {
    let entry = blueprint.entry;
    let mut all = vec![Volume {
        name: WORK.into(),
        persistent_volume_claim: entry.spec.workspace.as_ref().map(|_| {
            PersistentVolumeClaimVolumeSource {
                claim_name: names::workspace_claim(&entry.key.name),
                read_only: None,
            }
        }),
        empty_dir: entry
            .spec
            .workspace
            .is_none()
            .then(EmptyDirVolumeSource::default),
        ..Volume::default()
    }];
    if supervised {
        all.push(empty(BIN, EmptyDirVolumeSource::default()));
        all.push(empty(
            STATE,
            EmptyDirVolumeSource {
                medium: Some("Memory".into()),
                size_limit: Some(Quantity("16Mi".into())),
                ..EmptyDirVolumeSource::default()
            },
        ));
    }
    all
}

fn mounts(spec: &SandboxSpec, supervised: bool) -> Vec<VolumeMount> {
    let mut all = vec![mount(WORK, workspace_path(spec))];
    if supervised {
        all.push(VolumeMount {
            read_only: Some(true),
            ..mount(BIN, path::BIN_DIR)
        });
        all.push(mount(STATE, path::STATE_DIR));
    }
    all
}

/// Where the workspace is mounted.
pub fn workspace_path(spec: &SandboxSpec) -> &str {
    let own = spec
        .workspace
        .as_ref()
        .and_then(|w| w.mount_path.as_deref());
    own.unwrap_or(WORKSPACE)
}

fn empty(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
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

fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}
