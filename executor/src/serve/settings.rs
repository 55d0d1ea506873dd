//! The command line of the server, checked.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::identity::Identity;
use crate::cli::ServeOptions;

const PLUGINS: [&str; 3] = ["agent_skills", "jupyter", "vscode"];

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) port: u16,
    pub(super) bind_address: Option<IpAddr>,
    pub(super) working_dir: PathBuf,
    pub(super) username: String,
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
    #[error("cannot make the working directory {path}")]
    WorkingDir { path: PathBuf, source: io::Error },
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
            session_api_key: options.session_api_key,
            no_change: Duration::from_secs(options.no_change_timeout_seconds),
        })
    }

    pub(super) fn make_working_dir(&self, identity: &Identity) -> Result<(), SettingsError> {
        identity
            .own_directory(&self.working_dir)
            .map_err(|source| SettingsError::WorkingDir {
                path: self.working_dir.clone(),
                source,
            })
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
