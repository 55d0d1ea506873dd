//! VS Code in the browser, where the image has openvscode-server (spec 1.10, 2.7). Without it, or
//! without a port, there is no token, and everything else goes on.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::variable;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Health, Name, Plugin, Work};
use crate::serve::group::Leader;
use crate::serve::identity::Identity;
use crate::serve::private;
use crate::serve::set_up;
use crate::serve::settings::VsCodeSettings;

const HOME: &str = "/openhands/.openvscode-server";
const SETTINGS: &str = "{\n    \"workbench.colorTheme\": \"Default Dark Modern\",\n    \
     \"workbench.startupEditor\": \"none\",\n    \"chat.commandCenter.enabled\": false\n}\n";
/// Before a server that has ended is started again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// One that has lived so long is no failure when it ends.
const SETTLED: Duration = Duration::from_mins(5);

#[derive(Debug, thiserror::Error)]
enum VsCodeError {
    #[error("this user may not have it")]
    User,
    #[error("VSCODE_PORT is missing or no port")]
    NoPort,
    #[error("the port {0} is taken")]
    Taken(u16),
    #[error("the image has no openvscode-server")]
    Missing,
    #[error("cannot make a token: {0}")]
    Token(#[source] io::Error),
}

#[derive(Debug)]
pub(in crate::serve) struct VsCode {
    settings: VsCodeSettings,
    identity: Arc<Identity>,
    /// Of the image's openvscode-server.
    home: PathBuf,
    token: Mutex<Option<String>>,
    health: watch::Sender<Health>,
    running: Mutex<Option<AbortOnDropHandle<()>>>,
    stop: CancellationToken,
}

/// How openvscode-server is started, and who is told how it is.
#[derive(Debug)]
struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
    identity: Arc<Identity>,
    health: watch::Sender<Health>,
    stop: CancellationToken,
}

impl VsCode {
    pub(super) fn new(settings: VsCodeSettings, identity: Arc<Identity>) -> Self {
        let home =
            std::env::var_os("OPENVSCODE_SERVER_ROOT").map_or_else(|| HOME.into(), PathBuf::from);
        Self {
            settings,
            identity,
            home,
            token: Mutex::default(),
            health: watch::Sender::default(),
            running: Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// What a browser has to show; absent if there is nothing to connect to.
    pub(in crate::serve) fn token(&self) -> Option<String> {
        self.token.lock().clone()
    }

    async fn launch(&self) -> Result<(), VsCodeError> {
        if !self.settings.allowed {
            return Err(VsCodeError::User);
        }
        let port = self.settings.port.ok_or(VsCodeError::NoPort)?;
        let program = self.home.join("bin/openvscode-server");
        if !program.is_file() {
            return Err(VsCodeError::Missing);
        }
        self.put_settings().await;
        let token = uuid().map_err(VsCodeError::Token)?;
        *self.token.lock() = Some(token.clone());
        // Somebody else's server does not know the token; the client finds out.
        let address = (self.settings.address, port);
        TcpListener::bind(address).map_err(|_| VsCodeError::Taken(port))?;
        self.hand_over().await;
        let launch = Launch {
            program,
            arguments: self.arguments(&token, port),
            directory: self.directory(),
            identity: Arc::clone(&self.identity),
            health: self.health.clone(),
            stop: self.stop.clone(),
        };
        let running = AbortOnDropHandle::new(tokio::spawn(launch.keep_running()));
        *self.running.lock() = Some(running);
        Ok(())
    }

    fn directory(&self) -> PathBuf {
        let directory = &self.settings.directory;
        if directory.is_dir() {
            directory.clone()
        } else {
            "/".into()
        }
    }

    fn arguments(&self, token: &str, port: u16) -> Vec<String> {
        let mut arguments = vec!["--host".to_owned(), self.settings.address.to_string()];
        arguments.extend(["--connection-token".to_owned(), token.to_owned()]);
        arguments.extend(["--port".to_owned(), port.to_string()]);
        arguments.push("--disable-workspace-trust".to_owned());
        if let Some(base) = &self.settings.base_path {
            arguments.extend(["--server-base-path".to_owned(), base.clone()]);
        }
        arguments
    }

    /// It works without; it just looks different.
    async fn put_settings(&self) {
        let directory = self.settings.settings_directory.join(".vscode");
        let put = self.identity.run(move || put_settings(&directory));
        if let Err(error) = put.await.and_then(|put| put) {
            tracing::warn!(%error, "cannot write the settings of VS Code");
        }
    }

    /// It writes to its own directory, which the image may have made for another user.
    async fn hand_over(&self) {
        let Some((uid, gid)) = self.identity.owner() else {
            return;
        };
        let home = self.home.clone();
        let handed_over = tokio::task::spawn_blocking(move || set_up::hand_over(&home, uid, gid));
        if let Ok(Err(error)) = handed_over.await {
            tracing::warn!(%error, "cannot hand openvscode-server over to the user");
        }
    }
}

fn put_settings(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o666);
    let mut file = options.open(directory.join("settings.json"))?;
    file.write_all(SETTINGS.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(0o666))
}

impl Launch {
    /// Starts it again whenever it ends, until it is told to stop.
    async fn keep_running(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let since = Instant::now();
            let started = self.command().spawn();
            let started = started.and_then(|child| Leader::new(child, &self.identity));
            let problem = match started {
                Ok(leader) => {
                    self.health.send_replace(Health::Ready);
                    match self.attend(leader).await {
                        Some(problem) => problem,
                        None => return,
                    }
                }
                Err(error) => format!("cannot start openvscode-server: {error}"),
            };
            tracing::warn!(problem, "VS Code is away");
            self.health.send_replace(Health::Failed(problem));
            if since.elapsed() >= SETTLED {
                pause = FIRST_PAUSE;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env_remove(variable::SESSION_API_KEY)
            .env_remove(variable::OH_SESSION_API_KEYS_0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        self.identity.adopt(&mut command);
        command
    }

    /// Until it has ended, and how; nothing if it was told to stop. It is a script that has started a
    /// program: both are in its process group.
    async fn attend(&self, mut leader: Leader) -> Option<String> {
        tokio::select! {
            ended = leader.follow() => {
                let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                Some(format!("openvscode-server has ended ({how})"))
            }
            () = self.stop.cancelled() => {
                leader.group().signal(Signal::KILL).await;
                let _ = leader.follow().await;
                None
            }
        }
    }
}

/// A random UUID, version 4.
fn uuid() -> io::Result<String> {
    let mut bytes = private::random()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let hyphen = if [4, 6, 8, 10].contains(&index) {
            "-"
        } else {
            ""
        };
        let _ = write!(text, "{hyphen}{byte:02x}");
    }
    Ok(text)
}

impl Plugin for VsCode {
    fn name(&self) -> Name {
        Name::VsCode
    }

    fn start(&self) -> Work<'_, ()> {
        Box::pin(async {
            if let Err(error) = self.launch().await {
                self.health.send_replace(Health::Failed(error.to_string()));
            }
            // What has been launched tells by itself how it is.
            let mut health = self.health.subscribe();
            let _ = health.wait_for(|health| *health != Health::Starting).await;
        })
    }

    fn stop(&self) -> Work<'_, ()> {
        Box::pin(async {
            self.stop.cancel();
            let running = self.running.lock().take();
            if let Some(running) = running {
                let _ = running.await;
            }
        })
    }

    fn health(&self) -> Health {
        self.health.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_uuids() {
        let token = uuid().unwrap();
        let groups: Vec<_> = token.split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert_eq!(token.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&token.as_bytes()[19]));
        assert_ne!(token, uuid().unwrap());
    }
}
