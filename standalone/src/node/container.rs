//! Start of a container: image, user, environment, volumes, limits.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::Node;
use super::bwrap::BwrapSpec;
use super::capacity::limit;
use super::cgroup::{ContainerCgroup, Limits};
use super::container_user::{self, ContainerUser, ContainerUserError};
use super::devices::Allocation;
use super::environment::{DownwardApi, EnvironmentError, Variables, resolve};
use super::image::{Image, ImageDefaults, ImageError};
use super::kept_root::KeptRoot;
use super::logs::LogWriter;
use super::mount::Mount;
use super::network::Attachment;
use super::process::{LaunchSpec, Process};
use super::termination_message::TerminationMessage;
use super::volumes::{VolumeError, Volumes, volume_mounts};

/// Bytes kept of the output of one run.
const LOG_LIMIT: u64 = 10 << 20;

/// Pod with the resources that its containers share.
pub(crate) struct PreparedPod {
    pub node: Arc<Node>,
    pub pod: Arc<Pod>,
    pub uid: String,
    pub attachment: Attachment,
    pub devices: Arc<Allocation>,
    pub volumes: Volumes,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerStartError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Identity(#[from] ContainerUserError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("no command specified")]
    NoCommand,
    #[error("the Pod has been stopped")]
    Stopped,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl ContainerStartError {
    /// Waiting reasons: of this failure, and during the backoff.
    pub(crate) fn reasons(&self) -> (&'static str, &'static str) {
        match self {
            Self::Image(ImageError::Name(_)) => ("InvalidImageName", "InvalidImageName"),
            Self::Image(ImageError::Never(_)) => ("ErrImageNeverPull", "ErrImageNeverPull"),
            Self::Image(
                ImageError::Pull(..)
                | ImageError::PullSecret(..)
                | ImageError::NotRoot
                | ImageError::Directory { .. },
            ) => ("ErrImagePull", "ImagePullBackOff"),
            Self::Identity(_) | Self::Environment(_) | Self::Volume(_) => {
                ("CreateContainerConfigError", "CreateContainerConfigError")
            }
            Self::Image(_) | Self::NoCommand | Self::Stopped | Self::Io(_) => {
                ("CreateContainerError", "CreateContainerError")
            }
        }
    }
}

impl PreparedPod {
    pub(crate) fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    fn spec(&self) -> PodSpec {
        self.pod.spec.clone().unwrap_or_default()
    }

    pub(crate) fn hostname(&self) -> String {
        let name = self.spec().hostname;
        let name = name.unwrap_or_else(|| self.name().to_owned());
        // Host name limit of the kernel, as the kubelet applies it.
        let name: String = name.chars().take(63).collect();
        name.trim_end_matches(['-', '.']).to_owned()
    }

    /// Starts run `number` of `container` from its image, with a root that is there.
    pub(crate) async fn start_in(
        &self,
        root: Vec<Mount>,
        kept: Option<KeptRoot>,
        container: &Container,
        image: &Image,
        number: i32,
    ) -> Result<Process, ContainerStartError> {
        let defaults = image.defaults()?;
        let (node, grants) = (self.node.user, self.node.grants(&self.pod));
        let spec = self.spec();
        let user = container_user::resolve(&spec, container, &defaults, node, grants)?;
        let mut variables = self.variables(container, &defaults, &user).await?;
        let devices = self.devices.of_container(&spec, &container.name);
        for (name, value) in devices.iter().flat_map(|device| &device.environment) {
            variables.set(name, value.clone());
        }
        if let Some(state) = self.root_state(container, kept.as_ref()) {
            let state = serde_json::to_string(&state).map_err(std::io::Error::from)?;
            variables.set(crds::contract::variable::NODE_ROOT, state);
        }
        let command = command(container, &defaults, &variables)?;
        let mut volumes = volume_mounts(container, &self.volumes, &variables)?;
        volumes.extend(devices.iter().flat_map(|device| device.mounts.clone()));
        match &kept {
            Some(kept) => volumes.push(image.shown_changes(&kept.generations.current())),
            None => {
                for volume in &mut volumes {
                    image.place(volume)?;
                }
            }
        }
        let directory = container.working_dir.clone();
        let directory = directory.filter(|path| !path.is_empty());
        let mut sandbox = BwrapSpec {
            hostname: self.hostname(),
            tag: self.node.paths.tag.clone(),
            self_exe: self.node.config.self_exe.clone(),
            root,
            volumes,
            environment: variables.into_pairs(),
            user,
            directory: directory.map_or(defaults.directory.clone(), Into::into),
            command,
        };
        let logs = self.node.paths.logs(&self.uid).join(&container.name);
        let log = LogWriter::create(&logs, number, LOG_LIMIT)?;
        let termination_message = TerminationMessage::create(&logs)?;
        sandbox.volumes.insert(0, termination_message.mount());
        let launch = LaunchSpec {
            sandbox,
            network: self.attachment.namespace.clone(),
            users: self.node.users_of(&self.pod),
            image: image.clone(),
            keeps_root: kept.is_some(),
            stop_signal: defaults.stop_signal,
        };
        let group = self.group(container, number)?;
        let launcher = &self.node.launcher;
        let process = Process::start(launcher, launch, group, log, termination_message, kept);
        let process = process.await?;
        let namespace = self.pod.metadata.namespace.clone().unwrap_or_default();
        let path = [namespace, self.name().to_owned(), container.name.clone()];
        self.node.config.containers.add(path, &process.container);
        Ok(process)
    }

    fn group(&self, container: &Container, number: i32) -> std::io::Result<ContainerCgroup> {
        let name = group_name(&self.uid, &container.name, number);
        let limits = self.node.limits(container);
        self.node.cgroups.container(&name, limits)
    }

    async fn variables(
        &self,
        container: &Container,
        defaults: &ImageDefaults,
        user: &ContainerUser,
    ) -> Result<Variables, ContainerStartError> {
        let mut base = Variables::default();
        base.set("HOME", defaults.home_of(user.uid()).to_owned());
        for (name, value) in &defaults.environment {
            base.set(name, value.clone());
        }
        base.set("HOSTNAME", self.hostname());
        let address = self.attachment.lease.address.to_string();
        if self.node.network.is_shared() {
            base.set(crds::contract::variable::BIND_ADDRESS, address.clone());
        }
        let downward = DownwardApi {
            pod: &self.pod,
            pod_ip: address,
            host_ip: self.node.network.host_ip().to_string(),
        };
        Ok(resolve(&self.node.client, &downward, container, base).await?)
    }
}

/// Command line: `command` replaces the image's entrypoint, `args` its arguments.
fn command(
    container: &Container,
    defaults: &ImageDefaults,
    variables: &Variables,
) -> Result<Vec<String>, ContainerStartError> {
    let (own, args) = (container.command.as_ref(), container.args.as_ref());
    let own = own.filter(|own| !own.is_empty());
    let args = args.filter(|args| !args.is_empty());
    let expanded = |list: &Vec<String>| -> Vec<String> {
        list.iter().map(|arg| variables.expand(arg)).collect()
    };
    let mut command = own.map_or_else(|| defaults.entrypoint.clone(), expanded);
    match args {
        Some(args) => command.extend(expanded(args)),
        None if own.is_none() => command.extend(defaults.arguments.iter().cloned()),
        None => {}
    }
    if command.is_empty() {
        return Err(ContainerStartError::NoCommand);
    }
    Ok(command)
}

/// Name of the cgroup of one run of a container.
pub(crate) fn group_name(pod_uid: &str, container: &str, run: i32) -> String {
    format!("{pod_uid}-{container}-{run}")
}

impl Node {
    /// Limits of a container that the kernel enforces.
    pub(crate) fn limits(&self, container: &Container) -> Limits {
        Limits {
            memory: limit(container, "memory", 1.0).filter(|bytes| *bytes > 0),
            processes: self.config.process_limit,
            cpu: limit(container, "cpu", 1000.0).filter(|cpu| *cpu > 0),
            disk: self.disk_rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_and_args_combine_as_on_a_cluster() {
        for (image, command, args, expected) in [
            ("", "sh", "-c x", Some("sh -c x")),
            ("", "", "", None),
            ("entry default", "", "", Some("entry default")),
            ("entry default", "", "own", Some("entry own")),
            ("entry default", "sh", "", Some("sh")),
        ] {
            let list = |text: &str| -> Vec<String> {
                text.split_whitespace().map(str::to_owned).collect()
            };
            let mut entrypoint = list(image);
            let arguments = entrypoint.split_off(entrypoint.len().min(1));
            let defaults = ImageDefaults {
                entrypoint,
                arguments,
                ..ImageDefaults::host()
            };
            let container = Container {
                command: Some(list(command)),
                args: Some(list(args)),
                ..Container::default()
            };
            let combined = super::command(&container, &defaults, &Variables::default()).ok();
            let combined = combined.map(|command| command.join(" "));
            assert_eq!(combined.as_deref(), expected, "{command:?} {args:?}");
        }
    }
}
