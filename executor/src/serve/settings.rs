//! The command line of the server, checked.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::cli::ServeOptions;

const PLUGINS: [&str; 3] = ["agent_skills", "jupyter", "vscode"];

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
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("Plugin {0} not found")]
    Plugin(String),
    #[error("Browser environment is not enabled in config, but browsergym_eval_env is set")]
    Browser,
    #[error("the working directory {0} is not absolute")]
    Relative(PathBuf),
    #[error("invalid literal for int() with base 10: {0:?} (RUNTIME_MAX_MEMORY_GB)")]
    Memory(String),
}

impl Settings {
    pub(super) fn check(options: ServeOptions) -> Result<Self, SettingsError> {
        let unknown = |plugin: &&String| !PLUGINS.contains(&plugin.as_str());
        if let Some(plugin) = options.plugins.iter().find(unknown) {
            return Err(SettingsError::Plugin(plugin.clone()));
        }
        if options.no_enable_browser && !options.browsergym_eval_env.is_empty() {
            return Err(SettingsError::Browser);
        }
        if !options.working_dir.is_absolute() {
            return Err(SettingsError::Relative(options.working_dir));
        }
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
        Settings::check(options).map_err(|error| error.to_string())
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
}
