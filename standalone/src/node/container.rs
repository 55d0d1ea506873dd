//! From a container of a Pod to a running process: image, user, environment, volumes, limit.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::bwrap::{Mount, Sandbox};
use super::cgroup::Group;
use super::environment::{Downward, EnvironmentError, Variables, resolve};
use super::identity::{self, Identity, IdentityError};
use super::image::{Defaults, Image, ImageError, Names};
use super::last_words::LastWords;
use super::logs::LogWriter;
use super::network::Attachment;
use super::process::{Launch, Process};
use super::quantity;
use super::volumes::{VolumeError, Volumes, mounts};
use super::{Node, removal};

/// A Pod with all that its containers share.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub node: Arc<Node>,
    pub pod: Arc<Pod>,
    pub uid: String,
    pub attachment: Attachment,
    pub volumes: Volumes,
}

/// Why a container could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("no command specified")]
    NoCommand,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl StartError {
    /// The reason at once, and the one while the next attempt is awaited.
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

impl Prepared {
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
        // The kernel's limit, as the kubelet applies it.
        name.chars()
            .take(63)
            .collect::<String>()
            .trim_end_matches(['-', '.'])
            .to_owned()
    }

    /// Starts `container` for the `number`th time.
    pub(crate) async fn start(
        &self,
        container: &Container,
        number: i32,
    ) -> Result<Process, StartError> {
        let reference = container.image.as_deref().unwrap_or_default();
        let image = self.node.config.images.resolve(reference)?;
        if image == Image::Host && number == 0 {
            let pod = self.name();
            tracing::info!(
                pod,
                image = reference,
                "this machine's own programs take the place of the image"
            );
        }
        let defaults = image.defaults()?;
        let identity = identity::resolve(&self.spec(), container, &defaults, self.node.user)?;
        let variables = self.variables(container, &defaults, &identity).await?;
        let command = command(container, &defaults, &variables)?;
        let volumes = mounts(container, &self.volumes, &variables)?;
        let root = self.root(image, container).await?;
        let directory = container
            .working_dir
            .clone()
            .filter(|path| !path.is_empty());
        let sandbox = Sandbox {
            hostname: self.hostname(),
            tag: self.node.paths.tag.clone(),
            self_exe: self.node.config.self_exe.clone(),
            root,
            volumes,
            environment: variables.into_pairs(),
            identity,
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
        mut sandbox: Sandbox,
        container: &Container,
        number: i32,
    ) -> Result<Launch, StartError> {
        let logs = self.node.paths.logs(&self.uid).join(&container.name);
        let log = LogWriter::create(&logs, number, self.node.config.log_limit)?;
        let last_words = LastWords::create(&logs)?;
        sandbox.volumes.insert(0, last_words.mount());
        Ok(Launch {
            bwrap: self.node.config.bwrap.clone(),
            sandbox,
            network: self.attachment.namespace.clone(),
            group: self.group(container, number)?,
            log,
            last_words,
        })
    }

    fn group(&self, container: &Container, number: i32) -> std::io::Result<Option<Group>> {
        let resources = container.resources.as_ref();
        let limit = resources.and_then(|resources| resources.limits.as_ref()?.get("memory"));
        let limit = limit.and_then(|limit| quantity::bytes(&limit.0));
        let name = format!("{}-{}-{number}", self.uid, container.name);
        let groups = self.node.groups.as_ref().zip(limit);
        groups
            .map(|(groups, limit)| groups.group(&name, limit))
            .transpose()
    }

    async fn variables(
        &self,
        container: &Container,
        defaults: &Defaults,
        identity: &Identity,
    ) -> Result<Variables, StartError> {
        let uid = match identity {
            Identity::Switched(switch) => switch.uid,
            Identity::Mapped { uid, .. } => *uid,
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
        let downward = Downward {
            pod: &self.pod,
            pod_ip: address,
            host_ip: self.node.network.host_ip().to_string(),
            node_name: &self.node.config.node_name,
        };
        Ok(resolve(&self.node.client, &downward, container, base).await?)
    }

    /// A fresh root: what an earlier start wrote outside of volumes is gone, as on a cluster.
    async fn root(&self, image: Image, container: &Container) -> Result<Vec<Mount>, StartError> {
        let scratch = self.node.paths.root(&self.uid, &container.name);
        let executor = self.node.config.executor_binary.clone();
        let names = Names {
            hostname: self.hostname(),
            address: self.attachment.address().to_string(),
            resolv_conf: self.node.network.resolv_conf(),
            node: self.node.user,
        };
        let made = tokio::task::spawn_blocking(move || {
            removal::remove(&scratch);
            image.root(&scratch, &executor, &names)
        });
        Ok(made.await.map_err(std::io::Error::other)??)
    }
}

/// The command line: `command` replaces the image's, `args` its arguments.
fn command(
    container: &Container,
    defaults: &Defaults,
    variables: &Variables,
) -> Result<Vec<String>, StartError> {
    let own = container.command.as_deref().unwrap_or_default();
    let args = container.args.as_deref().unwrap_or_default();
    let words: Vec<String> = if !own.is_empty() {
        own.iter()
            .chain(args)
            .map(|word| variables.expand(word))
            .collect()
    } else if args.is_empty() {
        defaults.command.clone()
    } else {
        let args = args.iter().map(|word| variables.expand(word));
        defaults
            .command
            .iter()
            .take(1)
            .cloned()
            .chain(args)
            .collect()
    };
    if words.is_empty() {
        Err(StartError::NoCommand)
    } else {
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_combine_as_on_a_cluster() {
        let mut defaults = Defaults::host();
        let words = |command: &[&str], args: &[&str], defaults: &Defaults| {
            let list = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
            let container = Container {
                command: list(command),
                args: list(args),
                ..Container::default()
            };
            super::command(&container, defaults, &Variables::default())
                .map(|words| words.join(" "))
                .ok()
        };
        assert_eq!(
            words(&["sh"], &["-c", "x"], &defaults).as_deref(),
            Some("sh -c x")
        );
        assert_eq!(words(&[], &[], &defaults), None);
        defaults.command = vec!["entry".into(), "default".into()];
        assert_eq!(words(&[], &[], &defaults).as_deref(), Some("entry default"));
        assert_eq!(
            words(&[], &["own"], &defaults).as_deref(),
            Some("entry own")
        );
        assert_eq!(words(&["sh"], &[], &defaults).as_deref(), Some("sh"));
    }
}
