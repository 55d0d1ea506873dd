//! VS Code in the browser for images with openvscode-server (`docs/specs/executor.md`, sections
//! 1.10 and 2.7). Without it, or without a port, the token is null and the server works on.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::Command;

use super::Health;
use super::process::{Process, Program};
use crate::serve::manifest::Restart;
use crate::serve::owner::change_owner;
use crate::serve::private_dir;
use crate::serve::settings::VsCodeSettings;
use crate::serve::shell::LaunchContext;

const HOME: &str = "/openhands/.openvscode-server";
const SETTINGS: &str = "{\n    \"workbench.colorTheme\": \"Default Dark Modern\",\n    \
     \"workbench.startupEditor\": \"none\",\n    \"chat.commandCenter.enabled\": false\n}\n";
/// Time to look for the program.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum VsCodeError {
    #[error("not available to this user")]
    User,
    #[error("VSCODE_PORT is missing or not a port")]
    NoPort,
    #[error("the image has no openvscode-server")]
    Missing,
    #[error("cannot create a token: {0}")]
    Token(#[source] io::Error),
}

#[derive(Debug)]
pub(crate) struct VsCode {
    settings: VsCodeSettings,
    start: LaunchContext,
    /// Directory of openvscode-server in the image.
    home: PathBuf,
    token: Mutex<Option<String>>,
    process: Process,
}

impl VsCode {
    pub(super) fn new(settings: VsCodeSettings, start: LaunchContext) -> Self {
        let home = start.variable("OPENVSCODE_SERVER_ROOT");
        Self {
            settings,
            home: home.map_or_else(|| HOME.into(), PathBuf::from),
            start,
            token: Mutex::default(),
            process: Process::default(),
        }
    }

    /// Connection token for a browser; `None` if there is no server.
    pub(crate) fn token(&self) -> Option<String> {
        self.token.lock().clone()
    }

    pub(super) async fn start(&self) {
        if let Err(error) = self.launch().await {
            self.process.fail(error.to_string());
        }
        self.process.wait_started().await;
    }

    /// Starts the server again, with another token.
    pub(crate) async fn renew_token(&self) {
        if self.token.lock().take().is_some() {
            self.process.stop().await;
            self.start().await;
        }
    }

    pub(super) async fn stop(&self) {
        self.process.stop().await;
    }

    pub(super) fn health(&self) -> Health {
        self.process.health()
    }

    async fn launch(&self) -> Result<(), VsCodeError> {
        if !self.settings.allowed {
            return Err(VsCodeError::User);
        }
        let port = self.settings.port.ok_or(VsCodeError::NoPort)?;
        let program = self.home.join("bin/openvscode-server");
        let directory = self.settings.directory.clone();
        let paths = (program.clone(), directory.clone());
        let found = tokio::task::spawn_blocking(move || (paths.0.is_file(), paths.1.is_dir()));
        let found = tokio::time::timeout(RESPONSE_TIMEOUT, found).await;
        let Ok(Ok((true, has_directory))) = found else {
            return Err(VsCodeError::Missing);
        };
        self.write_settings().await;
        let random = private_dir::random().map_err(VsCodeError::Token)?;
        let token = uuid::Builder::from_random_bytes(random)
            .into_uuid()
            .to_string();
        *self.token.lock() = Some(token.clone());
        self.hand_over().await;
        let directory = if has_directory { directory } else { "/".into() };
        self.process.start(Program {
            name: "openvscode-server".to_owned(),
            command: self.command(&program, &directory, &token, port),
            identity: Arc::clone(&self.start.identity),
            // The token is kept even if the port is in use, as in the Python server.
            address: Some((self.settings.address, port).into()),
            readiness: None,
            restart: Restart::Always,
        });
        Ok(())
    }

    fn command(&self, program: &Path, directory: &Path, token: &str, port: u16) -> Command {
        let mut command = Command::new(program);
        command
            .args(["--host", &self.settings.address.to_string()])
            .args(["--connection-token", token])
            .args(["--port", &port.to_string()])
            .arg("--disable-workspace-trust");
        if let Some(base) = &self.settings.base_path {
            command.args(["--server-base-path", base]);
        }
        command.current_dir(directory);
        // It has its own Node, and not the Python of kernels.
        self.start.environment.apply_to(&mut command);
        self.start.identity.apply_to(&mut command);
        command
    }

    /// Writes the editor settings. A failure is not fatal.
    async fn write_settings(&self) {
        let directory = self.settings.settings_directory.join(".vscode");
        let written = self.start.identity.run(move || write_settings(&directory));
        if let Err(error) = written.await.and_then(|written| written) {
            tracing::warn!(%error, "cannot write the settings of VS Code");
        }
    }

    /// Gives the installation to the user: it writes to its own directory.
    async fn hand_over(&self) {
        let Some(owner) = self.start.identity.owner() else {
            return;
        };
        let home = self.home.clone();
        let handed_over = tokio::task::spawn_blocking(move || change_owner(&home, owner, true));
        if let Ok(Err(error)) = handed_over.await {
            tracing::warn!(%error, "cannot change the owner of openvscode-server");
        }
    }
}

fn write_settings(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut file = fs::File::create(directory.join("settings.json"))?;
    file.write_all(SETTINGS.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o666))
}
