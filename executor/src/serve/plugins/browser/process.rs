//! Process of the browser: Chromium as the sandbox user, in a process group of its own, spoken to
//! over a pipe.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use browser::cdp::{CdpError, attach_pipe};
use browser::chromium::{self, LaunchOptions};
use browser::tabs::Tabs;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::downloads::FOLDER;
use super::proxies::Forwarders;
use super::settings::BrowserSettings;
use crate::serve::identity::Identity;
use crate::serve::process_group::{GroupLeader, ProcessGroup};
use crate::serve::shell::LaunchContext;

mod memory;

/// Time in which Chromium has to answer its first command.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time to write the profile at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between the end of the pipe and that of the process.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// A Pod that is short of memory loses its browser first.
const OOM_SCORE: &str = "900";

#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("the image has no Chromium")]
    NoProgram,
    #[error("cannot create a profile: {0}")]
    Profile(#[source] io::Error),
    #[error("cannot forward to the sandbox's proxy: {0}")]
    Forwarders(#[source] io::Error),
    #[error("cannot start {0}: {1}")]
    Spawn(PathBuf, #[source] io::Error),
    #[error("{0} did not answer: {1}")]
    Connect(PathBuf, #[source] CdpError),
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) tabs: Tabs,
    group: KillOnDrop,
    ended: watch::Receiver<Option<String>>,
    _memory_watch: Option<AbortOnDropHandle<()>>,
    _forwarders: Forwarders,
}

/// Ends the browser also if the one who waits for it gives up.
#[derive(Debug)]
struct KillOnDrop(ProcessGroup);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let group = self.0.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { group.kill().await });
        }
    }
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
    /// Starts Chromium with the profile in a directory, and a home directory other than the user's, if
    /// there is one.
    pub(super) async fn start(
        program: PathBuf,
        profile: PathBuf,
        home: Option<PathBuf>,
        forwarders: Forwarders,
        settings: &BrowserSettings,
        start: &LaunchContext,
    ) -> Result<Self, LaunchError> {
        let identity = &start.identity;
        let options = LaunchOptions {
            program: program.clone(),
            profile,
            isolates_sites: false,
        };
        let mut command = options.command();
        let spawn_error = |error| LaunchError::Spawn(program.clone(), error);
        start.apply_to(&mut command);
        command.envs(home.map(|home| ("HOME", home)));
        command.envs(
            forwarders
                .variables
                .iter()
                .map(|(name, value)| (name, value)),
        );
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
        let group = KillOnDrop(leader.group());
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
                _memory_watch: memory_watch,
                _forwarders: forwarders,
            }),
            Err(error) => {
                group.0.kill().await;
                Err(LaunchError::Connect(program, error))
            }
        }
    }

    /// Reason of an error: the end of the browser, if it has ended or is about to.
    pub(super) async fn why_it_failed(&self, error: &CdpError) -> String {
        let mut ended = self.ended.clone();
        let waiting = tokio::time::timeout(END_TIMEOUT, ended.wait_for(Option::is_some));
        let how = waiting.await.ok().and_then(Result::ok);
        let how = how.and_then(|how| how.clone());
        how.map_or_else(|| error.to_string(), |how| format!("it ended ({how})"))
    }

    /// Lets the browser write its profile, and ends it.
    pub(super) async fn close(self) {
        self.tabs
            .root()
            .send("Browser.close", serde_json::json!({}));
        let mut ended = self.ended.clone();
        let ending = ended.wait_for(Option::is_some);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, ending).await;
        self.kill().await;
    }

    /// Ends the browser at once.
    pub(super) async fn kill(mut self) {
        self.group.0.kill().await;
        let _ = self.ended.wait_for(Option::is_some).await;
    }
}

async fn follow(mut leader: GroupLeader, ended: watch::Sender<Option<String>>) {
    let status = leader.wait().await;
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    ended.send_replace(Some(how));
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
