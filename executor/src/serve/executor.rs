//! Carries out actions: commands one after the other in the shell, files beside it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::action::{Action, ActionError, Run};
use super::activity::Activity;
use super::editor::Editor;
use super::files::FileError;
use super::mcp::Mcp;
use super::observation::Observation;
use super::plugins::Plugins;
use super::plugins::jupyter::JupyterError;
use super::resources::Meter;
use super::settings::Settings;
use super::shell::{Answer, Request, Session, ShellError, Start};

mod cells;
mod documents;
mod exchange;

/// Commands in shells of their own at once; each costs a process.
const MAX_STATIC: u32 = 4;
/// Actions under way or waiting. A client has one; more come from retries.
const MAX_ACTIONS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecuteError {
    #[error(transparent)]
    Action(#[from] ActionError),
    #[error("{0}: {cause}", cause = cause(.0))]
    Shell(#[from] ShellError),
    #[error(transparent)]
    File(FileError),
    #[error(transparent)]
    Jupyter(#[from] JupyterError),
    #[error("cannot act for the sandbox user: {0}")]
    Identity(#[source] std::io::Error),
    #[error("too many actions at once")]
    Busy,
    #[error("the server is shutting down")]
    Closed,
    #[error("the action was abandoned")]
    Abandoned(#[from] tokio::task::JoinError),
}

fn cause(error: &ShellError) -> String {
    std::error::Error::source(error).map_or_else(String::new, ToString::to_string)
}

#[derive(Debug)]
pub(super) struct Executor {
    pub(super) activity: Arc<Activity>,
    /// Watches a command that outlived its action, for as long as it runs.
    left_behind: Lock<Option<AbortOnDropHandle<()>>>,
    pub(super) meter: Meter,
    pub(super) plugins: Plugins,
    pub(super) mcp: Mcp,
    start: Start,
    no_change: Duration,
    /// Absent once the server shuts down.
    session: Mutex<Option<Session>>,
    /// Of the shell, after its last command: known without waiting for the shell.
    working_dir: Lock<PathBuf>,
    editor: Arc<Editor>,
    static_slots: Semaphore,
    slots: Semaphore,
    transfers: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Executor {
    /// Starts the shell; the executor can serve when this returns.
    pub(super) async fn start(start: Start, settings: &Settings) -> Result<Arc<Self>, ShellError> {
        let no_change = settings.no_change;
        let session = Session::main(start.clone(), no_change).await?;
        let editor = Arc::new(Editor::new());
        Ok(Arc::new(Self {
            activity: Activity::new(),
            left_behind: Lock::default(),
            meter: Meter::new(),
            plugins: Plugins::new(settings, &start, &editor),
            mcp: Mcp::new(start.clone()),
            working_dir: Lock::new(session.working_dir().to_path_buf()),
            session: Mutex::new(Some(session)),
            start,
            no_change,
            static_slots: Semaphore::new(MAX_STATIC as usize),
            slots: Semaphore::new(MAX_ACTIONS),
            editor,
            transfers: Arc::new(Semaphore::new(exchange::MAX_TRANSFERS)),
            stop: CancellationToken::new(),
        }))
    }

    /// Ends the shell, the plugins and everything in them, also in the middle of a command.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        if let Some(session) = self.session.lock().await.take() {
            session.close().await;
        }
        tokio::join!(self.plugins.stop(), self.mcp.close());
        // Each static command closes its own shell.
        let _ = self.static_slots.acquire_many(MAX_STATIC).await;
    }

    /// Carries out an action to its end, whether or not somebody still waits for the answer.
    pub(super) async fn execute(
        self: &Arc<Self>,
        action: Action,
    ) -> Result<Observation, ExecuteError> {
        let executor = Arc::clone(self);
        tokio::spawn(async move { executor.carry_out(action).await }).await?
    }

    async fn carry_out(&self, action: Action) -> Result<Observation, ExecuteError> {
        let _slot = self.slots.try_acquire().map_err(|_| ExecuteError::Busy)?;
        let _running = self.activity.begin();
        match action {
            Action::Run(run) => self.run(run).await,
            Action::Read(read) => self.read(read).await,
            Action::Write(write) => self.write(write).await,
            Action::Edit(edit) => self.edit(edit).await,
            Action::RunCell(cell) => self.run_cell(cell).await,
            Action::Unavailable(word) => Ok(unavailable(word)),
        }
    }

    async fn run(&self, run: Run) -> Result<Observation, ExecuteError> {
        let request = Request {
            command: run.command.trim().to_owned(),
            is_input: run.is_input,
            blocking: run.blocking,
            timeout: run.timeout,
            // Clients cannot take an `error` in answer to a hidden command.
            only_one: !run.hidden,
        };
        let answer = if run.is_static {
            self.run_apart(&request, run.cwd).await?
        } else {
            self.run_in_session(&request).await?
        };
        Ok(match answer {
            Answer::Outcome(outcome) => Observation::run(&request.command, run.hidden, outcome),
            Answer::Refused(text) => Observation::error(text),
        })
    }

    async fn run_in_session(&self, request: &Request) -> Result<Answer, ExecuteError> {
        let mut guard = self.session.lock().await;
        let session = guard.as_mut().ok_or(ExecuteError::Closed)?;
        let answer = tokio::select! {
            answer = session.run(request) => answer?,
            () = self.stop.cancelled() => return Err(ExecuteError::Closed),
        };
        *self.working_dir.lock() = session.working_dir().to_path_buf();
        *self.left_behind.lock() = session.rest().map(|rest| {
            let running = self.activity.begin();
            AbortOnDropHandle::new(tokio::spawn(async move {
                rest.await;
                drop(running);
            }))
        });
        Ok(answer)
    }

    /// In a shell of its own that lives as long as the command.
    async fn run_apart(
        &self,
        request: &Request,
        cwd: Option<String>,
    ) -> Result<Answer, ExecuteError> {
        let _slot = self
            .static_slots
            .acquire()
            .await
            .map_err(|_| ExecuteError::Closed)?;
        if self.stop.is_cancelled() {
            return Err(ExecuteError::Closed);
        }
        let mut start = self.start.clone();
        // A directory that does not exist falls back, as in the original.
        if let Some(cwd) = cwd.map(PathBuf::from).filter(|cwd| cwd.is_dir()) {
            start.working_dir = cwd;
        }
        let mut session = Session::fresh(start, self.no_change).await?;
        let answer = tokio::select! {
            answer = session.run(request) => answer.map_err(ExecuteError::from),
            () = self.stop.cancelled() => Err(ExecuteError::Closed),
        };
        session.close().await;
        answer
    }

    async fn as_user<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ExecuteError> {
        let done = self.start.identity.run(work).await;
        done.map_err(ExecuteError::Identity)
    }
}

fn unavailable(what: &str) -> Observation {
    Observation::error(format!(
        "The action {what} is not available in this sandbox."
    ))
}
