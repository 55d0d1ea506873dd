//! Browser of the sandbox: Chromium, found in the image, for the actions `browse` and
//! `browse_interactive` (`docs/specs/browser.md`). It starts at the first use, ends after a time
//! without use, and is restarted after a crash; the next answer says so.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use browser::operations::{FoundFile, UploadFiles};
use browser::step::{self, StepContext};
use browser::tabs::Tabs;
use futures::FutureExt as _;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(in crate::serve) use self::action::{Browse, BrowseKind, BrowseOutcome};
use self::control::Control;
pub(in crate::serve) use self::control::ControlGuard;
use self::downloads::DownloadFolder;
pub(in crate::serve) use self::page::{Page, PageExtras, evaluation, failed as page_failed};
use self::process::{LaunchError, Process};
use self::profile::Profile;
use self::proxies::Forwarders;
pub(in crate::serve) use self::settings::BrowserSettings;
use super::Health;
use crate::serve::shell::LaunchContext;

mod action;
mod certificates;
mod control;
mod downloads;
mod page;
mod process;
mod profile;
mod proxies;
mod screenshots;
mod settings;

/// Longest step; clients give up at 125 s.
const STEP_TIMEOUT: Duration = Duration::from_secs(115);
/// Steps in a row that time out before the browser is replaced.
const MAX_TIMEOUTS: u32 = 3;
const TIMEOUT_TEXT: &str = "Browser environment took too long to respond.";
const CONTROLLED_TEXT: &str = "A person is in control of the browser. Try again later.";
/// Time in which a running browser has to respond before a step.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which a running step has to end before a save.
const STEP_END_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of the step's time in which its end is answered.
const ANSWER_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(in crate::serve) struct Browser {
    pub(in crate::serve) settings: BrowserSettings,
    start: LaunchContext,
    health: watch::Sender<Health>,
    /// Locked during a step: there is one at a time.
    state: Arc<Mutex<BrowserState>>,
    /// Tabs of the last process, for those who do not wait for a step.
    running: parking_lot::Mutex<Option<Tabs>>,
    control: Control,
    /// Clones keep the browser from ending for want of use.
    holds: Arc<()>,
    idle_watch: parking_lot::Mutex<Option<AbortOnDropHandle<()>>>,
    stop: CancellationToken,
}

#[derive(Debug)]
struct BrowserState {
    process: Option<Process>,
    /// Present after the first start.
    profile: Option<Profile>,
    downloads: DownloadFolder,
    last_use: Instant,
    timeouts: u32,
    /// Told with the next answer.
    notices: Vec<String>,
}

impl Browser {
    pub(super) fn new(settings: BrowserSettings, start: LaunchContext) -> Self {
        let state = BrowserState {
            process: None,
            profile: None,
            downloads: DownloadFolder::new(settings.workspace()),
            last_use: Instant::now(),
            timeouts: 0,
            notices: Vec::new(),
        };
        Self {
            settings,
            start,
            health: watch::Sender::default(),
            state: Arc::new(Mutex::new(state)),
            running: parking_lot::Mutex::default(),
            control: Control::default(),
            holds: Arc::default(),
            idle_watch: parking_lot::Mutex::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Looks for Chromium, creates the download folder and, if configured, starts the browser.
    pub(super) async fn start(&self) {
        if self.program().await.is_none() {
            let error = LaunchError::NoProgram;
            self.health.send_replace(Health::Failed(error.to_string()));
            return;
        }
        let mut state = self.state.lock().await;
        state.downloads.create(&self.start.identity).await;
        if self.settings.starts_eagerly {
            self.ensure(&mut state).await;
        } else {
            self.health.send_replace(Health::Ready);
        }
    }

    /// Health, if `--plugins` names the browser.
    pub(super) fn health(&self) -> Option<Health> {
        self.settings.is_named.then(|| self.health.borrow().clone())
    }

    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let idle_watch = self.idle_watch.lock().take();
        drop(idle_watch);
        let mut state = self.state.lock().await;
        match state.process.take() {
            Some(process) if self.settings.keeps_profile => process.close().await,
            Some(process) => process.kill().await,
            None => {}
        }
        if let Some(profile) = state.profile.take() {
            profile.remove().await;
        }
    }

    /// Ends the browser before the processes of the sandbox are saved. The profile stays, and the
    /// next step starts the browser again and says why.
    pub(in crate::serve) async fn end_for_save(&self) {
        // A step that hangs leaves the browser as it is, and the save fails.
        let state = tokio::time::timeout(STEP_END_TIMEOUT, self.state.lock()).await;
        if let Ok(mut state) = state
            && let Some(process) = state.process.take()
        {
            process.close().await;
            state.notices.push(restart_notice("the sandbox was paused"));
        }
    }

    /// Performs one action; the browser starts if it does not run.
    pub(in crate::serve) async fn browse(&self, action: &Browse) -> BrowseOutcome {
        let deadline = Instant::now() + STEP_TIMEOUT;
        let working = async {
            let mut state = loop {
                if !self.control.released(deadline - ANSWER_TIME).await {
                    return BrowseOutcome::Failed(CONTROLLED_TEXT.to_owned());
                }
                let state = self.state.lock().await;
                // A person may have taken it during the step before.
                if !self.control.is_taken() {
                    break state;
                }
            };
            let outcome = self.step(&mut state, action, deadline).await;
            state.last_use = Instant::now();
            outcome
        };
        tokio::select! {
            outcome = tokio::time::timeout_at(deadline, working) => {
                outcome.unwrap_or_else(|_| BrowseOutcome::Failed(TIMEOUT_TEXT.to_owned()))
            }
            () = self.stop.cancelled() => BrowseOutcome::Unsupported,
        }
    }

    /// Tabs of the running browser; it is started if necessary. `None` if it does not start.
    pub(in crate::serve) async fn tabs(&self) -> Option<Tabs> {
        let running = self.running.lock().clone();
        if let Some(tabs) = running.filter(|tabs| !tabs.connection().is_closed()) {
            return Some(tabs);
        }
        let mut state = self.state.lock().await;
        self.ensure(&mut state).await;
        state.last_use = Instant::now();
        Some(state.process.as_ref()?.tabs.clone())
    }

    /// Keeps the browser from ending for want of use.
    pub(in crate::serve) fn hold(&self) -> Arc<()> {
        Arc::clone(&self.holds)
    }

    /// Gives a person the control once a running step has ended; `None` if another one has it. The
    /// agent's next actions wait.
    pub(in crate::serve) fn take_control(&self) -> Option<impl Future<Output = ControlGuard>> {
        let guard = self.control.take()?;
        let state = Arc::clone(&self.state);
        Some(async move {
            drop(state.lock().await);
            guard
        })
    }

    pub(in crate::serve) fn is_controlled(&self) -> bool {
        self.control.is_taken()
    }

    async fn step(
        &self,
        state: &mut BrowserState,
        action: &Browse,
        deadline: Instant,
    ) -> BrowseOutcome {
        self.ensure(state).await;
        let Some(process) = &state.process else {
            return BrowseOutcome::Unsupported;
        };
        let context = StepContext {
            files: self.files(),
            raw_tree: action.return_axtree,
            max_tree_chars: self.settings.max_tree_chars,
        };
        let text = match &action.kind {
            BrowseKind::Url(url) => step::visit_program(url),
            BrowseKind::Program(program) => program.clone(),
        };
        let running = step::run(&process.tabs, &text, &context);
        match tokio::time::timeout_at(deadline - ANSWER_TIME, running).await {
            Ok(Ok(step)) => self.finish(state, action, step).await,
            Err(_) => {
                state.timeouts += 1;
                if state.timeouts >= MAX_TIMEOUTS {
                    let reason = format!("{MAX_TIMEOUTS} steps in a row have timed out");
                    self.replace(state, &reason).await;
                }
                BrowseOutcome::Failed(TIMEOUT_TEXT.to_owned())
            }
            Ok(Err(error)) => {
                let reason = process.why_it_failed(&error).await;
                self.replace(state, &reason).await;
                BrowseOutcome::Failed(std::mem::take(&mut state.notices).join("\n"))
            }
        }
    }

    /// Files of the sandbox as its user sees them.
    fn files(&self) -> UploadFiles {
        let identity = Arc::clone(&self.start.identity);
        UploadFiles::new(self.start.working_dir.clone(), move |path| {
            let identity = Arc::clone(&identity);
            async move { identity.run(move || FoundFile::at(&path)).await }.boxed()
        })
    }

    /// Answers a step that was performed: a download that was not told yet comes first.
    async fn finish(
        &self,
        state: &mut BrowserState,
        action: &Browse,
        step: step::Step,
    ) -> BrowseOutcome {
        state.timeouts = 0;
        let identity = &self.start.identity;
        state.downloads.add(&step.downloads);
        if let BrowseKind::Program(program) = &action.kind
            && let Some(path) = state.downloads.take(identity).await
        {
            let (program, path) = (program.clone(), path.to_string_lossy().into_owned());
            return BrowseOutcome::Download { program, path };
        }
        let directory = &self.start.working_dir;
        let saving = screenshots::save(identity, directory, &step.page.screenshot);
        let mut notices = std::mem::take(&mut state.notices);
        notices.extend(step.notices.iter().cloned());
        BrowseOutcome::Page(Box::new(Page {
            screenshot_path: saving.await,
            notices,
            step,
        }))
    }

    /// Ends the browser; the next step starts it again and says why.
    async fn replace(&self, state: &mut BrowserState, reason: &str) {
        tracing::warn!(reason, "the browser is replaced");
        if let Some(process) = state.process.take() {
            process.kill().await;
        }
        state.timeouts = 0;
        state.notices.push(restart_notice(reason));
    }

    /// Makes sure that the browser runs. Its health says why it does not.
    async fn ensure(&self, state: &mut BrowserState) {
        if let Some(process) = &state.process {
            let asking = tokio::time::timeout(ALIVE_TIMEOUT, process.tabs.version());
            let reason = match asking.await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => process.why_it_failed(&error).await,
                Err(_) => "it did not respond".to_owned(),
            };
            self.replace(state, &reason).await;
        }
        let launched = tokio::select! {
            launched = self.launch(state) => launched,
            () = self.stop.cancelled() => return,
        };
        match launched {
            Ok(process) => {
                *self.running.lock() = Some(process.tabs.clone());
                self.health.send_replace(Health::Ready);
                state.process = Some(process);
                state.last_use = Instant::now();
                self.watch_idleness();
            }
            Err(error) => {
                tracing::warn!(%error, "the browser does not start");
                self.health.send_replace(Health::Failed(error.to_string()));
            }
        }
    }

    async fn launch(&self, state: &mut BrowserState) -> Result<Process, LaunchError> {
        let program = self.program().await.ok_or(LaunchError::NoProgram)?;
        let profile = self.profile(state).await.map_err(LaunchError::Profile)?;
        let home = certificates::home(&self.start, &profile).await;
        let home = home.unwrap_or_else(|error| {
            tracing::warn!(%error, "the browser does not trust the certificates of the sandbox");
            None
        });
        let forwarders = Forwarders::start(&self.start).await;
        let forwarders = forwarders.map_err(LaunchError::Forwarders)?;
        Process::start(
            program,
            profile,
            home,
            forwarders,
            &self.settings,
            &self.start,
        )
        .await
    }

    /// Directory of the profile, which is created at the first start.
    async fn profile(&self, state: &mut BrowserState) -> io::Result<PathBuf> {
        let (identity, workspace) = (&self.start.identity, self.settings.workspace());
        let profile = match state.profile.take() {
            Some(profile) => profile,
            None if self.settings.keeps_profile => {
                Profile::on_workspace(identity, workspace).await?
            }
            None => Profile::private(identity, workspace).await?,
        };
        state.profile.insert(profile).unlocked(identity).await
    }

    /// Ends a browser that is not used, if that is configured. The profile stays.
    fn watch_idleness(&self) {
        let Some(limit) = self.settings.idle_timeout else {
            return;
        };
        let (state, holds) = (Arc::clone(&self.state), Arc::downgrade(&self.holds));
        let watching = tokio::spawn(async move {
            let mut next = Instant::now() + limit;
            loop {
                tokio::time::sleep_until(next).await;
                let mut state = state.lock().await;
                if holds.strong_count() > 1 {
                    state.last_use = Instant::now();
                }
                next = state.last_use + limit;
                if next <= Instant::now() {
                    if let Some(process) = state.process.take() {
                        process.close().await;
                    }
                    return;
                }
            }
        });
        *self.idle_watch.lock() = Some(AbortOnDropHandle::new(watching));
    }

    async fn program(&self) -> Option<PathBuf> {
        process::find_program(&self.settings, &self.start).await
    }
}

fn restart_notice(reason: &str) -> String {
    format!("The browser was restarted because {reason}: tabs and page contents are gone.")
}
