//! The command line of the server, checked.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use super::plugins::{Name, UnknownName};
use crate::cli::ServeOptions;

const WORKSPACE: &str = "/workspace";

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) port: u16,
    pub(super) bind_address: Option<IpAddr>,
    pub(super) working_dir: PathBuf,
    pub(super) username: String,
    pub(super) user_id: u32,
    /// Of the working directory.
    pub(super) group: String,
    /// Most memory of one process in the sandbox.
    pub(super) max_memory_gib: Option<u64>,
    /// Another user that shells may change to, beside the two standard ones.
    extra_username: Option<String>,
    may_change_user: bool,
    /// Whoever started the server.
    own_username: Option<String>,
    pub(super) session_api_key: String,
    pub(super) no_change: Duration,
    /// Says where the file viewer listens.
    pub(super) viewer_url_file: PathBuf,
    pub(super) plugins: Vec<Name>,
    /// For each plugin.
    pub(super) start_timeout: Duration,
    pub(super) vscode: VsCodeSettings,
}

/// Where the editor in the browser is reached and what it opens (spec 1.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VsCodeSettings {
    /// Absent if it is missing or no port.
    pub(super) port: Option<u16>,
    /// Where the server itself listens: all addresses, or the one it has in a network with others.
    pub(super) address: IpAddr,
    /// With a slash in front and none behind.
    pub(super) base_path: Option<String>,
    pub(super) directory: PathBuf,
    pub(super) settings_directory: PathBuf,
    /// Whether this user may have it.
    pub(super) allowed: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error(transparent)]
    Plugin(#[from] UnknownName),
    #[error("Browser environment is not enabled in config, but browsergym_eval_env is set")]
    Browser,
    #[error("the working directory {0} is not absolute")]
    Relative(PathBuf),
    #[error("invalid literal for int() with base 10: {0:?} (RUNTIME_MAX_MEMORY_GB)")]
    Memory(String),
}

impl Settings {
    pub(super) fn check(options: ServeOptions) -> Result<Self, SettingsError> {
        let plugins = Name::parse_all(&options.plugins)?;
        if options.no_enable_browser && !options.browsergym_eval_env.is_empty() {
            return Err(SettingsError::Browser);
        }
        if !options.working_dir.is_absolute() {
            return Err(SettingsError::Relative(options.working_dir));
        }
        let vscode = VsCodeSettings::of(&options);
        Ok(Self {
            port: options.port,
            bind_address: options.bind_address,
            working_dir: options.working_dir,
            username: options.username,
            user_id: options.user_id,
            group: options.sandbox_group_id,
            max_memory_gib: memory(options.runtime_max_memory_gb)?,
            extra_username: options.runtime_username,
            may_change_user: is_true(&options.su_to_user),
            own_username: options.user,
            session_api_key: options.session_api_key,
            no_change: Duration::from_secs(options.no_change_timeout_seconds),
            viewer_url_file: options.viewer_url_file,
            plugins,
            start_timeout: Duration::from_secs(options.init_plugin_timeout),
            vscode,
        })
    }

    /// The server serves whoever started it, on that person's own machine.
    pub(super) fn is_developers_own(&self) -> bool {
        self.own_username.as_ref() == Some(&self.username) && !self.is_standard_user()
    }

    /// Whether shells run as the sandbox's user and not as the server's.
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

/// The one that is set, or that of a sandbox whose URL begins with its name.
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

fn memory(text: Option<String>) -> Result<Option<u64>, SettingsError> {
    let parse = |text: String| text.trim().parse().map_err(|_| SettingsError::Memory(text));
    text.filter(|text| !text.is_empty()).map(parse).transpose()
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
    fn what_cannot_work_is_refused() {
        assert_eq!(
            check(&["--plugins", "jupyter", "x"]).unwrap_err(),
            "Plugin x not found"
        );
        assert!(
            check(&["--working-dir", "w"])
                .unwrap_err()
                .contains("not absolute")
        );
        let error = check(&["--no-enable-browser", "--browsergym-eval-env", "a", "b"]).unwrap_err();
        assert!(error.starts_with("Browser environment is not enabled"));
        assert!(check(&["--browsergym-eval-env", "a"]).is_ok());
    }

    #[test]
    fn plugins_are_taken_once_each() {
        let settings = check(&["--plugins", "jupyter", "agent_skills", "jupyter"]).unwrap();
        assert_eq!(settings.plugins, [Name::Jupyter, Name::AgentSkills]);
    }

    #[test]
    fn the_base_path_is_set_or_that_of_the_url() {
        let base = |flags: &[&str]| check(flags).unwrap().vscode.base_path;
        assert_eq!(base(&["--vscode-base-path", "a/b/"]).unwrap(), "/a/b");
        let id = ["--runtime-id", "abc", "--runtime-url"];
        let with = |url| base(&[id[0], id[1], id[2], url]);
        assert_eq!(with("https://h:1/abc/runtime").unwrap(), "/abc/vscode");
        assert_eq!(with("https://abc.h/"), None);
        assert_eq!(with("https://h/abcd"), None);
    }
}
