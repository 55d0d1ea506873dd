//! Start of a container: image, user, environment, volumes, limits.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::bwrap::BwrapSpec;
use super::capacity::limit;
use super::cgroup::{ContainerCgroup, Limits};
use super::container_user::{self, ContainerUser, ContainerUserError};
use super::environment::{DownwardApi, EnvironmentError, Variables, resolve};
use super::image::{Image, ImageDefaults, ImageError, PodIdentity};
use super::logs::LogWriter;
use super::mount::Mount;
use super::network::Attachment;
use super::process::{LaunchSpec, Process};
use super::termination_message::TerminationMessage;
use super::volumes::{VolumeError, Volumes, mounts};
use super::{Node, remove_tree};

/// Pod with the resources that its containers share.
#[derive(Debug)]
pub(crate) struct PreparedPod {
    pub node: Arc<Node>,
    pub pod: Arc<Pod>,
    pub uid: String,
    pub attachment: Attachment,
    pub volumes: Volumes,
}

/// A container cannot be started.
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
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl ContainerStartError {
    /// Waiting reasons: of this failure, and during the backoff.
    pub(crate) fn reasons(&self) -> (&'static str, &'static str) {
        match self {
            Self::Image(ImageError::Name(_)) => ("InvalidImageName", "InvalidImageName"),
            Self::Image(ImageError::Unknown(_) | ImageError::Directory { .. }) => {
                ("ErrImagePull", "ImagePullBackOff")
            }
            Self::Identity(_) | Self::Environment(_) | Self::Volume(_) => {
                ("CreateContainerConfigError", "CreateContainerConfigError")
            }
            Self::Image(_) | Self::NoCommand | Self::Io(_) => {
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

    fn hostname(&self) -> String {
        let name = self
            .spec()
            .hostname
            .unwrap_or_else(|| self.name().to_owned());
        // Host name limit of the kernel, as the kubelet applies it.
        name.chars()
            .take(63)
            .collect::<String>()
            .trim_end_matches(['-', '.'])
            .to_owned()
    }

    /// Starts run `number` of `container`.
    pub(crate) async fn start(
        &self,
        container: &Container,
        number: i32,
    ) -> Result<Process, ContainerStartError> {
        let reference = container.image.as_deref().unwrap_or_default();
        let image = self.node.config.images.resolve(reference)?;
        if image == Image::Host && number == 0 {
            let pod = self.name();
            tracing::info!(
                pod,
                image = reference,
                "the image is replaced by the host root"
            );
        }
        let defaults = image.defaults()?;
        let user = container_user::resolve(&self.spec(), container, &defaults, self.node.user)?;
        let variables = self.variables(container, &defaults, &user).await?;
        let command = command(container, &defaults, &variables)?;
        let volumes = mounts(container, &self.volumes, &variables)?;
        let root = self.root(image, container).await?;
        let directory = container
            .working_dir
            .clone()
            .filter(|path| !path.is_empty());
        let sandbox = BwrapSpec {
            hostname: self.hostname(),
            tag: self.node.paths.tag.clone(),
            self_exe: self.node.config.self_exe.clone(),
            root,
            volumes,
            environment: variables.into_pairs(),
            user,
            directory: directory.map_or(defaults.directory, Into::into),
            command,
        };
        Ok(Process::start(
            &self.node.launcher,
            self.launch(sandbox, container, number)?,
        )
        .await?)
    }

    fn launch(
        &self,
        mut sandbox: BwrapSpec,
        container: &Container,
        number: i32,
    ) -> Result<LaunchSpec, ContainerStartError> {
        let logs = self.node.paths.logs(&self.uid).join(&container.name);
        let log = LogWriter::create(&logs, number, self.node.config.log_limit)?;
        let termination_message = TerminationMessage::create(&logs)?;
        sandbox.volumes.insert(0, termination_message.mount());
        Ok(LaunchSpec {
            bwrap: self.node.config.bwrap.clone(),
            users: self.node.users.clone(),
            sandbox,
            network: self.attachment.namespace.clone(),
            group: self.group(container, number)?,
            log,
            termination_message,
        })
    }

    fn group(&self, container: &Container, number: i32) -> std::io::Result<ContainerCgroup> {
        let name = format!("{}-{}-{number}", self.uid, container.name);
        let limits = Limits {
            memory: limit(container, "memory", 1.0).filter(|bytes| *bytes > 0),
            processes: self.node.config.process_limit,
            cpu: limit(container, "cpu", 1000.0).filter(|cpu| *cpu > 0),
        };
        self.node.cgroups.container(&name, limits)
    }

    async fn variables(
        &self,
        container: &Container,
        defaults: &ImageDefaults,
        user: &ContainerUser,
    ) -> Result<Variables, ContainerStartError> {
        let uid = match user {
            ContainerUser::Switched(switch) => switch.uid,
            ContainerUser::Mapped { uid, .. } => *uid,
        };
        let mut base = Variables::default();
        for (name, value) in &defaults.environment {
            base.set(name, value.clone());
        }
        base.set("HOSTNAME", self.hostname());
        base.set("HOME", defaults.home_of(uid).to_owned());
        let address = self.attachment.address().to_string();
        if self.node.network.is_shared() {
            base.set(crds::contract::variable::BIND_ADDRESS, address.clone());
        }
        let downward = DownwardApi {
            pod: &self.pod,
            pod_ip: address,
            host_ip: self.node.network.host_ip().to_string(),
            node_name: &self.node.config.node_name,
        };
        Ok(resolve(&self.node.client, &downward, container, base).await?)
    }

    /// Creates a fresh root. Files of an earlier run outside of volumes are gone, as on a cluster.
    async fn root(
        &self,
        image: Image,
        container: &Container,
    ) -> Result<Vec<Mount>, ContainerStartError> {
        let scratch = self.node.paths.root(&self.uid, &container.name);
        let executor = self.node.config.executor_binary.clone();
        let pod_identity = PodIdentity {
            hostname: self.hostname(),
            address: self.attachment.address().to_string(),
            resolv_conf: self.node.network.resolv_conf(),
            node: self.node.user,
        };
        let made = tokio::task::spawn_blocking(move || {
            remove_tree::remove(&scratch);
            image.root(&scratch, &executor, &pod_identity)
        });
        Ok(made.await.map_err(std::io::Error::other)??)
    }
}

/// Command line: `command` replaces the image's entrypoint, `args` its arguments.
fn command(
    container: &Container,
    defaults: &ImageDefaults,
    variables: &Variables,
) -> Result<Vec<String>, ContainerStartError> {
    let own = container.command.as_deref().unwrap_or_default();
    let args = container.args.as_deref().unwrap_or_default();
    let args: Vec<String> = if !own.is_empty() {
        own.iter()
            .chain(args)
            .map(|arg| variables.expand(arg))
            .collect()
    } else if args.is_empty() {
        defaults.command.clone()
    } else {
        let args = args.iter().map(|arg| variables.expand(arg));
        defaults
            .command
            .iter()
            .take(1)
            .cloned()
            .chain(args)
            .collect()
    };
    if args.is_empty() {
        Err(ContainerStartError::NoCommand)
    } else {
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_and_args_combine_as_on_a_cluster() {
        let mut defaults = ImageDefaults::host();
        let args = |command: &[&str], args: &[&str], defaults: &ImageDefaults| {
            let list = |args: &[&str]| Some(args.iter().map(ToString::to_string).collect());
            let container = Container {
                command: list(command),
                args: list(args),
                ..Container::default()
            };
            super::command(&container, defaults, &Variables::default())
                .map(|args| args.join(" "))
                .ok()
        };
        assert_eq!(
            args(&["sh"], &["-c", "x"], &defaults).as_deref(),
            Some("sh -c x")
        );
        assert_eq!(args(&[], &[], &defaults), None);
        defaults.command = vec!["entry".into(), "default".into()];
        assert_eq!(args(&[], &[], &defaults).as_deref(), Some("entry default"));
        assert_eq!(args(&[], &["own"], &defaults).as_deref(), Some("entry own"));
        assert_eq!(args(&["sh"], &[], &defaults).as_deref(), Some("sh"));
    }
}
