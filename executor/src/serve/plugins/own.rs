//! Plugin of the user: the program of a manifest (`docs/plugins.md`, "Your own").

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::process::Command;

use super::Health;
use super::process::{Process, Program};
use crate::serve::identity::{Identity, IdentityError};
use crate::serve::launch_dir;
use crate::serve::manifest::{Access, Manifest, User};
use crate::serve::mcp::Config;
use crate::serve::own_plugin::OwnPlugin;
use crate::serve::shell::LaunchContext;

#[derive(Debug, thiserror::Error)]
enum OwnPluginError {
    #[error("{0} is missing in the environment")]
    Variable(String),
    #[error("user root: {0}")]
    User(#[from] IdentityError),
    #[error("user root: the server does not run as root")]
    NotRoot,
    #[error("the directory {} does not exist", .0.display())]
    Directory(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Own {
    plugin: OwnPlugin,
    start: LaunchContext,
    process: Process,
}

impl Own {
    pub(super) fn new(plugin: OwnPlugin, start: LaunchContext) -> Self {
        Self {
            plugin,
            start,
            process: Process::default(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.plugin.name
    }

    pub(super) fn health(&self) -> Health {
        self.process.health()
    }

    /// Address of its server; `None` if it has no port.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.plugin.address()
    }

    pub(super) fn is_public(&self) -> bool {
        let manifest = self.plugin.manifest.as_ref();
        manifest.is_ok_and(|manifest| manifest.access == Access::Public)
    }

    pub(super) fn tool_server(&self) -> Option<Config> {
        let url = self.plugin.tool_server()?.parse().ok()?;
        Some(Config::of_plugin(self.name(), url))
    }

    /// Reason why it cannot serve a request.
    pub(crate) fn problem(&self) -> Option<String> {
        let name = self.name();
        match self.health() {
            Health::Ready => None,
            Health::Starting => Some(format!("the plugin {name} is starting")),
            Health::Ended => Some(format!("the plugin {name} has ended")),
            Health::Crashed { how, last_line } if !(last_line.is_empty() || self.is_public()) => {
                Some(format!(
                    "the plugin {name} has failed: {how}, last output: {last_line}"
                ))
            }
            Health::Failed(how) | Health::Crashed { how, .. } => {
                Some(format!("the plugin {name} has failed: {how}"))
            }
        }
    }

    /// Starts the program and returns when it is ready or has failed.
    pub(super) async fn start(&self) {
        match &self.plugin.manifest {
            Ok(manifest) => match self.program(manifest).await {
                Ok(program) => {
                    let (plugin, version) = (self.name(), &manifest.version);
                    tracing::info!(plugin, version, "starts");
                    self.process.start(program);
                }
                Err(error) => self.process.fail(error.to_string()),
            },
            Err(error) => self.process.fail(error.to_string()),
        }
        self.process.wait_started().await;
    }

    pub(super) async fn stop(&self) {
        self.process.stop().await;
    }

    async fn program(&self, manifest: &Manifest) -> Result<Program, OwnPluginError> {
        let is_missing = |name: &&String| self.start.variable(name).is_none();
        if let Some(missing) = manifest.requires.iter().find(is_missing) {
            return Err(OwnPluginError::Variable(missing.clone()));
        }
        let directory = manifest.working_dir(&self.plugin.folder);
        let exists = launch_dir::is_dir(&self.start.identity, directory.clone()).await;
        if !exists.unwrap_or_default() {
            return Err(OwnPluginError::Directory(directory));
        }
        let identity = self.identity(manifest.user)?;
        let mut command = Command::new(&manifest.command[0]);
        // It brings its own Python, if it needs one, and not that of kernels.
        self.start.environment.apply_to(&mut command);
        identity.apply_to(&mut command);
        command
            .args(&manifest.command[1..])
            .envs(self.plugin.listening_variables())
            .env("SANDBOX_WORKSPACE", &self.start.working_dir)
            .envs(&manifest.env)
            .current_dir(directory);
        Ok(Program {
            name: self.name().to_owned(),
            command,
            identity,
            address: self.address(),
            readiness: manifest.readiness(),
            restart: manifest.restart,
        })
    }

    fn identity(&self, user: User) -> Result<Arc<Identity>, OwnPluginError> {
        match user {
            User::Sandbox => Ok(Arc::clone(&self.start.identity)),
            User::Root if rustix::process::geteuid().is_root() => {
                Ok(Arc::new(Identity::resolve("root", false)?))
            }
            User::Root => Err(OwnPluginError::NotRoot),
        }
    }
}
