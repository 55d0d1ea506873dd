//! Checks and meaning of the options of the server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::plugin_choice::Choice;
use crate::cli::ServeOptions;

const WORKSPACE: &str = "/workspace";

/// Address and directories of VS Code (`docs/specs/executor.md`, section 1.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VsCodeSettings {
    /// None if `VSCODE_PORT` is absent or not a port.
    pub(super) port: Option<u16>,
    /// Listening address of the server: all addresses, or its own one in a shared network.
    pub(super) address: IpAddr,
    /// Path with a leading and without a trailing slash.
    pub(super) base_path: Option<String>,
    pub(super) directory: PathBuf,
    pub(super) settings_directory: PathBuf,
    /// True if the configured user may use VS Code.
    pub(super) allowed: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("Browser environment is not enabled in config, but browsergym_eval_env is set")]
    Browser,
    #[error("--browsergym-eval-env is not supported: the benchmarks are Python packages")]
    Benchmark,
    #[error("the working directory {0} must be absolute")]
    Relative(PathBuf),
    #[error("invalid literal for int() with base 10: {0:?} (RUNTIME_MAX_MEMORY_GB)")]
    Memory(String),
}

impl ServeOptions {
    /// Rejects options that the Python server rejects.
    pub(super) fn check(&self) -> Result<(), SettingsError> {
        if self.no_enable_browser && !self.browsergym_eval_env.is_empty() {
            return Err(SettingsError::Browser);
        }
        if !self.browsergym_eval_env.is_empty() {
            return Err(SettingsError::Benchmark);
        }
        if !self.working_dir.is_absolute() {
            return Err(SettingsError::Relative(self.working_dir.clone()));
        }
        check_memory(self.runtime_max_memory_gb.as_deref())?;
        Ok(())
    }

    /// Starts only what can be given another environment later.
    pub(super) fn defer_plugins(&mut self) {
        let can_change = |word: &String| ["agent_skills", "jupyter"].contains(&word.as_str());
        self.plugins.retain(can_change);
        self.no_enable_browser = true;
    }

    /// Plugins of `--plugins`.
    pub(super) fn choices(&self) -> impl Iterator<Item = Choice<'_>> {
        self.plugins.iter().map(|word| Choice::parse(word))
    }

    pub(super) fn wants(&self, plugin: &str) -> bool {
        self.choices().any(|choice| choice.name == plugin)
    }

    pub(super) fn no_change(&self) -> Duration {
        Duration::from_secs(self.no_change_timeout_seconds)
    }

    /// True if the server runs as the user that started it, which is not a sandbox user.
    pub(super) fn is_local_development(&self) -> bool {
        self.user.as_ref() == Some(&self.username) && !self.is_standard_user()
    }

    /// True if shells run as the sandbox user instead of the user of the server.
    pub(super) fn change_user(&self) -> bool {
        is_true(&self.su_to_user) && self.is_known_user()
    }

    pub(super) fn logs_memory(&self) -> bool {
        is_true(&self.memory_monitor)
    }

    fn is_known_user(&self) -> bool {
        self.is_standard_user() || self.runtime_username.as_ref() == Some(&self.username)
    }

    fn is_standard_user(&self) -> bool {
        ["root", "openhands"].contains(&self.username.as_str())
    }
}

impl VsCodeSettings {
    pub(super) fn of(options: &ServeOptions) -> Self {
        let or_workspace =
            |given: &Option<PathBuf>| given.clone().unwrap_or_else(|| PathBuf::from(WORKSPACE));
        Self {
            port: options
                .vscode_port
                .as_ref()
                .and_then(|port| port.trim().parse().ok())
                .filter(|port| *port != 0),
            address: options.bind_address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            base_path: base_path(options),
            directory: or_workspace(&options.workspace),
            settings_directory: or_workspace(&options.workspace_base),
            allowed: options.is_known_user(),
        }
    }
}

/// Returns the configured base path, or the one of a URL in path form (`/ID/…`).
fn base_path(options: &ServeOptions) -> Option<String> {
    let set = options.vscode_base_path.as_deref().unwrap_or_default();
    let set = set.trim_matches('/');
    if !set.is_empty() {
        return Some(format!("/{set}"));
    }
    let id = options.runtime_id.as_deref().filter(|id| !id.is_empty())?;
    let url = options.runtime_url.as_deref()?;
    let (_, after_scheme) = url.split_once("://").unwrap_or(("", url));
    let (_, path) = after_scheme.split_once('/')?;
    (path.split('/').next() == Some(id)).then(|| format!("/{id}/vscode"))
}

fn is_true(text: &str) -> bool {
    ["1", "true", "t", "yes", "y", "on"].contains(&text.to_ascii_lowercase().as_str())
}

/// The Python server parses the memory limit and does not enforce it either.
fn check_memory(text: Option<&str>) -> Result<(), SettingsError> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) if text.trim().parse::<u64>().is_err() => {
            Err(SettingsError::Memory(text.to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn check(flags: &[&str]) -> Result<ServeOptions, String> {
        let line = ["x", "serve", "1"].iter().chain(flags);
        let Command::Serve(options) = Cli::parse_from(line).command else {
            panic!("not serve");
        };
        let checked = options.check().map(|()| *options);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn base_path_is_configured_or_derived_from_url() {
        let base = |flags: &[&str]| base_path(&check(flags).unwrap());
        assert_eq!(base(&["--vscode-base-path", "a/b/"]).unwrap(), "/a/b");
        let id = ["--runtime-id", "abc", "--runtime-url"];
        let with = |url| base(&[id[0], id[1], id[2], url]);
        assert_eq!(with("https://h:1/abc/runtime").unwrap(), "/abc/vscode");
        assert_eq!(with("https://abc.h/"), None);
        assert_eq!(with("https://h/abcd"), None);
    }
}
