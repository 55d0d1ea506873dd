//! Process of the browser: Chromium as the sandbox user, in a process group of its own, spoken to
//! over a pipe.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use browser::cdp::{CdpError, attach_pipe};
use browser::chromium::{self, LaunchOptions};
use browser::tabs::Tabs;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::downloads::FOLDER;
use super::settings::BrowserSettings;
use crate::serve::identity::Identity;
use crate::serve::private_dir::PrivateDir;
use crate::serve::process_group::{GroupLeader, ProcessGroup};
use crate::serve::shell::LaunchContext;

mod memory;

/// Time in which Chromium has to answer its first command.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to write the profile at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between the end of the pipe and that of the process.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Folder of a profile that is kept.
const PROFILE: &str = ".browser_profile";
/// A Pod that is short of memory loses its browser first.
const OOM_SCORE: &str = "900";

#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("cannot create a profile: {0}")]
    Profile(#[source] io::Error),
    #[error("cannot start {0}: {1}")]
    Spawn(PathBuf, #[source] io::Error),
    #[error("{0} did not answer: {1}")]
    Connect(PathBuf, #[source] CdpError),
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) tabs: Tabs,
    group: ProcessGroup,
    ended: watch::Receiver<Option<String>>,
    /// Absent if the profile is kept.
    profile: Option<PrivateDir>,
    _memory_watch: Option<AbortOnDropHandle<()>>,
}

/// Chromium of the image, searched as the sandbox user.
pub(super) async fn find_program(
    settings: &BrowserSettings,
    start: &LaunchContext,
) -> Option<PathBuf> {
    if let Some(program) = &settings.program {
        return Some(program.clone());
    }
    let names = ["HOME", "PATH", "PLAYWRIGHT_BROWSERS_PATH"];
    let variables = names.map(|name| (name, start.variable(name)));
    let searching = start.identity.run(move || {
        let variable = |name: &str| {
            let mut variables = variables.iter();
            variables.find(|(known, _)| *known == name)?.1.clone()
        };
        chromium::find(variable)
    });
    searching.await.ok().flatten()
}

impl Process {
    pub(super) async fn start(
        program: PathBuf,
        settings: &BrowserSettings,
        start: &LaunchContext,
    ) -> Result<Self, LaunchError> {
        let identity = &start.identity;
        let (directory, profile) = if settings.keeps_profile {
            let directory = kept_profile(identity, settings.workspace()).await;
            (directory.map_err(LaunchError::Profile)?, None)
        } else {
            let private = PrivateDir::create(identity, settings.workspace(), |_| Vec::new()).await;
            let private = private.map_err(LaunchError::Profile)?;
            (private.directory.clone(), Some(private))
        };
        let options = LaunchOptions {
            program: program.clone(),
            profile: directory,
            has_own_sandbox: false,
            isolates_sites: false,
            proxy_server: None,
            proxy_bypass: None,
        };
        let mut command = options.command();
        let spawn_error = |error| LaunchError::Spawn(program.clone(), error);
        start.environment.apply_to(&mut command);
        identity.apply_to(&mut command);
        let launch_dir = start.launch_dir(&program).await.map_err(spawn_error)?;
        command
            .current_dir(launch_dir)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let pipe = attach_pipe(&mut command).map_err(spawn_error)?;
        let child = command.spawn().map_err(spawn_error)?;
        // The command holds Chromium's ends of the pipes.
        drop(command);
        let pid = child.id();
        let leader = GroupLeader::new(child, identity).map_err(spawn_error)?;
        let group = leader.group();
        let (sender, ended) = watch::channel(None);
        tokio::spawn(follow(leader, sender));
        prefer_in_oom(identity, pid).await;
        let downloads = settings.workspace().join(FOLDER);
        let connecting = tokio::time::timeout(START_TIMEOUT, Tabs::connect(pipe, &downloads)).await;
        let connected = connecting.unwrap_or(Err(CdpError::Timeout("Browser.getVersion")));
        let memory_watch = settings.memory_limit.zip(pid).map(|(limit, pid)| {
            let watching = memory::watch(Arc::clone(identity), pid, limit);
            AbortOnDropHandle::new(tokio::spawn(watching))
        });
        match connected {
            Ok(tabs) => Ok(Self {
                tabs,
                group,
                ended,
                profile,
                _memory_watch: memory_watch,
            }),
            Err(error) => {
                group.kill().await;
                if let Some(profile) = &profile {
                    profile.remove().await;
                }
                Err(LaunchError::Connect(program, error))
            }
        }
    }

    /// End of the browser, if it has ended or is about to.
    pub(super) async fn how_it_ended(&self) -> Option<String> {
        let mut ended = self.ended.clone();
        let waiting = ended.wait_for(Option::is_some);
        let found = tokio::time::timeout(END_TIMEOUT, waiting)
            .await
            .ok()?
            .ok()?;
        found.clone()
    }

    /// Ends the browser; it writes its profile if it still can.
    pub(super) async fn close(mut self) {
        if self.profile.is_none() {
            self.tabs
                .root()
                .send("Browser.close", serde_json::json!({}));
            let ending = self.ended.wait_for(Option::is_some);
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, ending).await;
        }
        self.group.kill().await;
        let _ = self.ended.wait_for(Option::is_some).await;
        if let Some(profile) = &self.profile {
            profile.remove().await;
        }
    }
}

async fn follow(mut leader: GroupLeader, ended: watch::Sender<Option<String>>) {
    let status = leader.wait().await;
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    ended.send_replace(Some(how));
}

/// Directory on the workspace, so that logins survive a pause. Locks of a browser that was killed
/// are removed.
async fn kept_profile(identity: &Identity, workspace: &Path) -> io::Result<PathBuf> {
    let directory = workspace.join(PROFILE);
    let creating = identity.run(move || {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700))?;
        for lock in ["SingletonLock", "SingletonSocket", "SingletonCookie"] {
            let _ = std::fs::remove_file(directory.join(lock));
        }
        Ok(directory)
    });
    creating.await?
}

async fn prefer_in_oom(identity: &Identity, pid: Option<u32>) {
    let Some(pid) = pid else {
        return;
    };
    let path = format!("/proc/{pid}/oom_score_adj");
    // The user may raise the value of its own processes.
    let writing = identity.run_unqueued(move || std::fs::write(path, OOM_SCORE));
    if let Err(error) = writing.await.and_then(|written| written) {
        tracing::debug!(%error, "cannot set the OOM score of the browser");
    }
}
