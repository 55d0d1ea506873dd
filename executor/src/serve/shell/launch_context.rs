//! User, directory and environment of programs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ShellError;
use super::program::ShellProgram;
use crate::serve::environment::{self, Environment, EnvironmentChanges};
use crate::serve::identity::Identity;
use crate::serve::launch_dir::launch_dir;
use crate::serve::python_environment::Variables;

/// Variable that names the shell of a sandbox.
pub(super) const REQUESTED_SHELL: &str = "SANDBOX_SHELL";

/// User, directory and environment that shells, kernels and tool servers start with.
#[derive(Debug, Clone)]
pub(in crate::serve) struct LaunchContext {
    pub(in crate::serve) identity: Arc<Identity>,
    pub(in crate::serve) working_dir: PathBuf,
    /// Environment of the server.
    pub(in crate::serve) environment: Environment,
    /// Changes to it.
    pub(in crate::serve) variables: Variables,
}

impl LaunchContext {
    /// Value of a variable in the environment of started programs.
    pub(in crate::serve) fn variable(&self, name: &str) -> Option<OsString> {
        let mut changed = self.variables.iter();
        let changed = changed.find(|(changed, _)| *changed == name);
        changed.map_or_else(
            || self.environment.variable(name),
            |(_, value)| Some(value.clone()),
        )
    }

    /// Makes a command run as the user with the environment of started programs.
    pub(in crate::serve) fn apply_to(&self, command: &mut tokio::process::Command) {
        self.environment.apply_to(command);
        command.envs(self.variables.iter().cloned());
        self.identity.apply_to(command);
    }

    /// Variables that a program of this context needs to be one of the next. `None` if it must
    /// be started again.
    pub(in crate::serve) fn changes(&self, next: &Self) -> Option<EnvironmentChanges> {
        let [before, after] = [self, next].map(|start| {
            let mut command = tokio::process::Command::new("");
            start.apply_to(&mut command);
            command
        });
        let is_same_user = Arc::ptr_eq(&self.identity, &next.identity);
        let changes = environment::changes(before.as_std(), after.as_std());
        changes.filter(|_| is_same_user)
    }

    /// Shell for a person: that of the sandbox, else the user's own.
    pub(in crate::serve) async fn login_shell(&self) -> Result<PathBuf, ShellError> {
        let own = || self.identity.login_shell().map(Into::into);
        let requested = self.variable(REQUESTED_SHELL).or_else(own);
        let program = self.find_shell(requested).await?;
        Ok(program.path().to_owned())
    }

    pub(super) async fn find_shell(
        &self,
        requested: Option<OsString>,
    ) -> Result<ShellProgram, ShellError> {
        let found = ShellProgram::find(&self.identity, requested, self.variable("PATH")).await;
        found
            .map_err(ShellError::Directory)?
            .ok_or(ShellError::Missing)
    }

    pub(in crate::serve) async fn launch_dir(&self, program: &Path) -> io::Result<PathBuf> {
        launch_dir(&self.identity, self.working_dir.clone(), program.to_owned()).await
    }
}
