//! Validated settings of the server, from the command line and the environment.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::ServeOptions;

const WORKSPACE: &str = "/workspace";
/// Names that `--plugins` accepts.
pub(super) const PLUGINS: [&str; 3] = ["agent_skills", "jupyter", "vscode"];

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) port: u16,
    pub(super) bind_address: Option<IpAddr>,
    pub(super) working_dir: PathBuf,
    pub(super) username: String,
    pub(super) user_id: u32,
    /// Group of the working directory.
    pub(super) group: String,
    /// Another user that shells may change to, beside the two standard ones.
    extra_username: Option<String>,
    may_change_user: bool,
    /// `$USER` of the server process.
    own_username: Option<String>,
    pub(super) session_api_key: String,
    pub(super) no_change: Duration,
    /// Logs the memory of the sandbox.
    pub(super) memory_monitor: bool,
    /// File that the URL of the file viewer is written to.
    pub(super) viewer_url_file: PathBuf,
    plugins: Vec<String>,
    /// Start timeout of one plugin.
    pub(super) start_timeout: Duration,
    pub(super) vscode: VsCodeSettings,
}

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
    #[error("Plugin {0} not found")]
    Plugin(String),
    #[error("Browser environment is not enabled in config, but browsergym_eval_env is set")]
    Browser,
    #[error("the working directory {0} must be absolute")]
    Relative(PathBuf),
    #[error("invalid literal for int() with base 10: {0:?} (RUNTIME_MAX_MEMORY_GB)")]
    Memory(String),
}

impl Settings {
    pub(super) fn check(options: ServeOptions) -> Result<Self, SettingsError> {
        let mut plugins = options.plugins.iter();
        if let Some(unknown) = plugins.find(|name| !PLUGINS.contains(&name.as_str())) {
            return Err(SettingsError::Plugin(unknown.clone()));
        }
        if options.no_enable_browser && !options.browsergym_eval_env.is_empty() {
            return Err(SettingsError::Browser);
        }
        if !options.working_dir.is_absolute() {
            return Err(SettingsError::Relative(options.working_dir));
        }
        check_memory(options.runtime_max_memory_gb.as_deref())?;
        if !options.browsergym_eval_env.is_empty() {
            tracing::warn!("--browsergym-eval-env has no effect: this server has no browser");
        }
        let vscode = VsCodeSettings::of(&options);
        Ok(Self {
            port: options.port,
            bind_address: options.bind_address,
            working_dir: options.working_dir,
            username: options.username,
            user_id: options.user_id,
            group: options.sandbox_group_id,
            extra_username: options.runtime_username,
            may_change_user: is_true(&options.su_to_user),
            own_username: options.user,
            session_api_key: options.session_api_key,
            no_change: Duration::from_secs(options.no_change_timeout_seconds),
            memory_monitor: is_true(&options.memory_monitor),
            viewer_url_file: options.viewer_url_file,
            plugins: options.plugins,
            start_timeout: Duration::from_secs(options.init_plugin_timeout),
            vscode,
        })
    }

    /// Does not start VS Code: it could not be given another environment later.
    pub(super) fn defer_vscode(&mut self) {
        self.plugins.retain(|name| name != "vscode");
    }

    pub(super) fn wants(&self, plugin: &str) -> bool {
        self.plugins.iter().any(|wanted| wanted == plugin)
    }

    /// True if the server runs as the user that started it, which is not a sandbox user.
    pub(super) fn is_local_development(&self) -> bool {
        self.own_username.as_ref() == Some(&self.username) && !self.is_standard_user()
    }

    /// True if shells run as the sandbox user instead of the user of the server.
    pub(super) fn change_user(&self) -> bool {
        let known = self.is_standard_user() || self.extra_username.as_ref() == Some(&self.username);
        self.may_change_user && known
    }

    fn is_standard_user(&self) -> bool {
        ["root", "openhands"].contains(&self.username.as_str())
    }
}

impl VsCodeSettings {
    fn of(options: &ServeOptions) -> Self {
        let or_workspace =
            |given: &Option<PathBuf>| given.clone().unwrap_or_else(|| PathBuf::from(WORKSPACE));
        let username = Some(options.username.as_str());
        let allowed = [
            Some("root"),
            Some("openhands"),
            options.runtime_username.as_deref(),
        ];
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
            allowed: allowed.contains(&username),
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

    fn check(flags: &[&str]) -> Result<Settings, String> {
        let line = ["x", "serve", "1"].iter().chain(flags);
        let Command::Serve(options) = Cli::parse_from(line).command else {
            panic!("not serve");
        };
        Settings::check(*options).map_err(|error| error.to_string())
    }

    #[test]
    fn check_accepts_a_browser_environment() {
        assert!(check(&["--browsergym-eval-env", "a"]).is_ok());
    }

    #[test]
    fn base_path_is_configured_or_derived_from_url() {
        let base = |flags: &[&str]| check(flags).unwrap().vscode.base_path;
        assert_eq!(base(&["--vscode-base-path", "a/b/"]).unwrap(), "/a/b");
        let id = ["--runtime-id", "abc", "--runtime-url"];
        let with = |url| base(&[id[0], id[1], id[2], url]);
        assert_eq!(with("https://h:1/abc/runtime").unwrap(), "/abc/vscode");
        assert_eq!(with("https://abc.h/"), None);
        assert_eq!(with("https://h/abcd"), None);
    }
}
