//! The container that the user's image runs in.

use crds::contract::{CONTROL_PORT, path, variable};
use crds::names;
use crds::sandbox::{EnvVar as SpecVar, Port, PullPolicy, SandboxSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, EnvVarSource, ObjectFieldSelector, Pod,
    Secret, SecretEnvSource,
};

use super::pod::Order;
use super::profile::Profile;
use super::{Blueprint, BuildError, resources, volumes};
use crate::urls::DEFAULT_PORTS;

/// Where the workspace is if the spec does not say.
pub const WORKSPACE: &str = "/workspace";

/// Builds it.
pub fn container(blueprint: &Blueprint<'_>, order: &Order<'_>) -> Result<Container, BuildError> {
    let spec = &*blueprint.entry.spec;
    let supervised = blueprint.supervised();
    let supervise = || [path::EXECUTOR, "supervise"].map(Into::into).to_vec();
    Ok(Container {
        name: names::CONTAINER.into(),
        image: Some(spec.image.clone().ok_or(BuildError::NoImage)?),
        // Without one the API server decides by the tag: Always for `latest`.
        image_pull_policy: spec.image_pull_policy.map(|p| pull_policy(p).to_owned()),
        command: supervised.then(supervise),
        // The supervisor has to start anywhere; it makes the command's directory itself.
        working_dir: spec.working_dir.clone().filter(|_| !supervised),
        env: Some(variables(blueprint)?).filter(|env| !env.is_empty()),
        env_from: order.secret.map(|secret| vec![all_of(secret)]),
        ports: Some(ports(spec, supervised)?),
        resources: Some(resources::requirements(spec, &blueprint.config.defaults)?),
        security_context: Some(Profile::of(spec, blueprint.config).container()),
        volume_mounts: Some(volumes::mounts(blueprint)),
        ..Container::default()
    })
}

/// Where the workspace is mounted.
pub fn workspace_path(spec: &SandboxSpec) -> &str {
    let own = spec
        .workspace
        .as_ref()
        .and_then(|w| w.mount_path.as_deref());
    own.unwrap_or(WORKSPACE)
}

/// Takes out of the container's own variables what the Secret sets: they would win over it, while
/// for supervised sandboxes the initialisation wins over them.
pub fn give_way(pod: &mut Pod, secret: &Secret) {
    let sets = |name: &str| secret.data.as_ref().is_some_and(|d| d.contains_key(name));
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for own in containers.filter(|c| c.name == names::CONTAINER) {
        own.env
            .iter_mut()
            .for_each(|env| env.retain(|v| !sets(&v.name)));
        own.env.take_if(|env| env.is_empty());
    }
}

fn variables(blueprint: &Blueprint<'_>) -> Result<Vec<EnvVar>, BuildError> {
    let mut all = Vec::new();
    if blueprint.supervised() {
        all.push(field(variable::POD_UID, "metadata.uid"));
        all.push(field(variable::POD_IP, "status.podIP"));
        all.push(EnvVar {
            name: variable::CONTROL_KEY.to_owned(),
            value: Some(blueprint.control_key.to_owned()),
            value_from: None,
        });
    }
    let own = blueprint.entry.spec.env.iter().enumerate();
    for (at, variable) in own {
        all.push(own_variable(at, variable)?);
    }
    Ok(all)
}

fn own_variable(at: usize, variable: &SpecVar) -> Result<EnvVar, BuildError> {
    if RESERVED.contains(&variable.name.as_str()) {
        let path = format!("spec.env[{at}].name");
        return Err(BuildError::at(path, "this variable is the operator's own"));
    }
    let source = variable.value_from.as_ref();
    let source = source.map(serde_path_to_error::deserialize::<_, EnvVarSource>);
    let path = || format!("spec.env[{at}].valueFrom");
    Ok(EnvVar {
        name: variable.name.clone(),
        value: variable.value.clone(),
        value_from: source
            .transpose()
            .map_err(|e| BuildError::within(path(), &e))?,
    })
}

/// Variables of the supervisor.
pub(super) const RESERVED: [&str; 3] = [variable::POD_UID, variable::POD_IP, variable::CONTROL_KEY];

fn ports(spec: &SandboxSpec, supervised: bool) -> Result<Vec<ContainerPort>, BuildError> {
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port.into(),
        ..ContainerPort::default()
    };
    if spec.ports.is_empty() {
        let all = DEFAULT_PORTS.iter();
        return Ok(all.map(|(name, number)| port(name, *number)).collect());
    }
    let taken = |p: &Port| supervised && p.port == CONTROL_PORT;
    if let Some(at) = spec.ports.iter().position(taken) {
        let path = format!("spec.ports[{at}].port");
        let fault = format!("{CONTROL_PORT} is the supervisor's own");
        return Err(BuildError::at(path, fault));
    }
    let all = spec.ports.iter();
    Ok(all.map(|p| port(&p.name, p.port)).collect())
}

fn all_of(secret: &Secret) -> EnvFromSource {
    EnvFromSource {
        secret_ref: Some(SecretEnvSource {
            name: secret.metadata.name.clone().unwrap_or_default(),
            optional: None,
        }),
        ..EnvFromSource::default()
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

fn pull_policy(policy: PullPolicy) -> &'static str {
    match policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent => "IfNotPresent",
        PullPolicy::Never => "Never",
    }
}
