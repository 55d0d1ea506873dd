//! The container of the user's image.

use crds::contract::identity::IdentityKey;
use crds::contract::persistence::PersistenceLevel;
use crds::contract::{CONTROL_PORT, path, variable};
use crds::names;
use crds::sandbox::{EnvVar as SpecVar, Port, PullPolicy, SandboxSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, EnvVarSource, ObjectFieldSelector, Pod,
    Secret, SecretEnvSource,
};

use super::security_profile::Profile;
use super::{BuildContext, BuildError, PodParams, volumes};
use shared::resources;
use shared::urls::DEFAULT_PORTS;

/// Builds the container.
pub(super) fn container(
    context: &BuildContext<'_>,
    params: &PodParams<'_>,
) -> Result<Container, BuildError> {
    let spec = &*context.entry.spec;
    let supervised = context.is_supervised();
    let persistence = context.persistence();
    let keeps_memory = persistence
        .as_ref()
        .is_some_and(|persistence| persistence.level == PersistenceLevel::Memory);
    let withheld = persistence.map_or_else(Vec::new, |persistence| persistence.withheld);
    let supervise = || [path::EXECUTOR, "supervise"].map(Into::into).to_vec();
    Ok(Container {
        name: names::CONTAINER.into(),
        image: Some(spec.image.clone().ok_or(BuildError::NoImage)?),
        // By default the API server decides by the tag: Always for `latest`.
        image_pull_policy: spec.image_pull_policy.map(|p| pull_policy(p).to_owned()),
        command: supervised.then(supervise),
        // The supervisor itself creates the working directory of the command.
        working_dir: spec.working_dir.clone().filter(|_| !supervised),
        env: Some(variables(context)?).filter(|env| !env.is_empty()),
        env_from: params.secret.map(|secret| vec![env_from_secret(secret)]),
        ports: Some(ports(spec, supervised)?),
        resources: Some(resources::requirements(
            spec,
            &context.config.defaults.resources,
        )?),
        security_context: Some(
            Profile::of(spec, context.config).container(&withheld, !keeps_memory),
        ),
        volume_mounts: Some(volumes::mounts(context)),
        ..Container::default()
    })
}

/// Drops variables of the container that the Secret sets too: they would win over the Secret. In
/// supervised sandboxes the initialization wins over them.
pub(super) fn drop_overridden_variables(pod: &mut Pod, secret: &Secret) {
    let sets = |name: &str| secret.data.as_ref().is_some_and(|d| d.contains_key(name));
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for own in containers.filter(|c| c.name == names::CONTAINER) {
        own.env
            .iter_mut()
            .for_each(|env| env.retain(|v| !sets(&v.name)));
        own.env.take_if(|env| env.is_empty());
    }
}

fn variables(context: &BuildContext<'_>) -> Result<Vec<EnvVar>, BuildError> {
    let mut all = Vec::new();
    if context.is_supervised() {
        let plain = |name: &str, value| EnvVar {
            name: name.to_owned(),
            value: Some(value),
            value_from: None,
        };
        let control_key = context.key_set().signer().public_key();
        let identity = identity_key(context);
        all.push(env_from_field(variable::POD_UID, "metadata.uid"));
        all.push(env_from_field(variable::POD_IP, "status.podIP"));
        all.push(plain(variable::CONTROL_PUBLIC_KEY, control_key));
        all.push(plain(variable::IDENTITY_KEY, identity.to_text()));
        if let Some(persistence) = context.persistence() {
            let text = serde_json::to_string(&persistence);
            // Numbers and names can always be serialized.
            all.extend(text.ok().map(|text| plain(variable::PERSISTENCE, text)));
        }
    }
    for (at, variable) in context.entry.spec.env.iter().enumerate() {
        all.push(own_variable(at, variable)?);
    }
    Ok(all)
}

fn identity_key(context: &BuildContext<'_>) -> IdentityKey {
    let (entry, keys) = (context.entry, context.key_set());
    match context.pool {
        Some(_) => keys.pod_identity_key(&entry.key.namespace, &names::pod(&entry.key.name)),
        None => keys.identity_key(&entry.uid),
    }
}

fn own_variable(at: usize, own: &SpecVar) -> Result<EnvVar, BuildError> {
    if variable::SUPERVISOR.contains(&own.name.as_str()) {
        let path = format!("spec.env[{at}].name");
        return Err(BuildError::at(
            path,
            "this variable is reserved for the operator",
        ));
    }
    let source = own.value_from.as_ref();
    let source = source.map(serde_path_to_error::deserialize::<_, EnvVarSource>);
    let invalid = |e| BuildError::at_path(format!("spec.env[{at}].valueFrom"), &e);
    Ok(EnvVar {
        name: own.name.clone(),
        value: own.value.clone(),
        value_from: source.transpose().map_err(invalid)?,
    })
}

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
        let fault = format!("port {CONTROL_PORT} is reserved for the supervisor");
        return Err(BuildError::at(path, fault));
    }
    let all = spec.ports.iter();
    Ok(all.map(|p| port(&p.name, p.port)).collect())
}

fn env_from_secret(secret: &Secret) -> EnvFromSource {
    EnvFromSource {
        secret_ref: Some(SecretEnvSource {
            name: secret.metadata.name.clone().unwrap_or_default(),
            optional: None,
        }),
        ..EnvFromSource::default()
    }
}

fn env_from_field(name: &str, path: &str) -> EnvVar {
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
