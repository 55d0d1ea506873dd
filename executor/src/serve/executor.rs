//! Executes actions: commands one after the other in the shell, file actions independent of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::action::{Action, ActionError, Run, RunCell};
use super::activity::Activity;
use super::editor::Editor;
use super::launch_dir;
use super::mcp::Mcp;
use super::observation::Observation;
use super::output_log::OutputLog;
use super::own_plugin::OwnPlugin;
use super::plugins::Plugins;
use super::plugins::jupyter::JupyterError;
use super::resource_usage::Meter;
use super::shell::{CommandOutcome, LaunchContext, Request, RunResponse, Session, ShellError};
use super::terminals::Terminals;
use crate::cli::ServeOptions;

mod background_command;
mod browse;
mod file_actions;
mod transfers;

/// Concurrent isolated shells; each is a process.
const MAX_ISOLATED_SHELLS: u32 = 4;
/// Concurrent uploads and downloads: each has a thread for as long as its client takes.
const MAX_TRANSFERS: usize = 8;
/// Running and waiting actions. A client has one; more come from retries.
const MAX_ACTIONS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecuteError {
    #[error(transparent)]
    Action(#[from] ActionError),
    #[error("{0}{cause}", cause = cause(.0))]
    Shell(#[from] ShellError),
    #[error(transparent)]
    Jupyter(#[from] JupyterError),
    #[error("cannot run as the sandbox user: {0}")]
    Identity(#[source] std::io::Error),
    #[error("too many actions at once")]
    Busy,
    #[error("the server is shutting down")]
    Closed,
    #[error("the action was abandoned")]
    Abandoned(#[from] tokio::task::JoinError),
}

fn cause(error: &ShellError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(String::new, |source| format!(": {source}"))
}

/// An image without a shell is served without one.
fn unless_missing(started: Result<Session, ShellError>) -> Result<Option<Session>, ShellError> {
    match started {
        Err(error @ ShellError::Missing) => {
            tracing::warn!(%error, "commands cannot run");
            Ok(None)
        }
        started => started.map(Some),
    }
}

#[derive(Debug)]
pub(super) struct Executor {
    pub(super) activity: Arc<Activity>,
    /// Task that counts a command as activity after its action was answered.
    background_command: Lock<Option<AbortOnDropHandle<()>>>,
    pub(super) meter: Meter,
    pub(super) plugins: Plugins,
    pub(super) mcp: Mcp,
    pub(super) launch_context: LaunchContext,
    pub(super) terminals: Terminals,
    no_change: Duration,
    /// Absent in an image without a shell, and once the server shuts down.
    session: Mutex<Option<Session>>,
    /// Name of the shell, if there is one.
    shell: Lock<Option<String>>,
    /// Directory of the shell after its last command, readable while the shell is busy.
    working_dir: Lock<PathBuf>,
    editor: Arc<Editor>,
    static_slots: Semaphore,
    action_slots: Semaphore,
    transfers: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Executor {
    /// Starts the shell, if the image has one; the executor can serve when this returns.
    pub(super) async fn start(
        start: LaunchContext,
        options: &ServeOptions,
        own_plugins: Vec<OwnPlugin>,
    ) -> Result<Self, ShellError> {
        let log = Arc::<OutputLog>::default();
        let session = Session::start(start.clone(), options.no_change(), Some(log.clone())).await;
        let editor = Arc::new(Editor::new());
        let plugins = Plugins::new(options, &start, &editor, own_plugins);
        let session = unless_missing(session)?;
        Ok(Self::new(start, session, options, editor, (plugins, log)))
    }

    /// Continues an executor without requests with other settings. Its shell and its plugins stay
    /// if they can.
    pub(super) async fn resume(
        self,
        start: LaunchContext,
        options: &ServeOptions,
        own_plugins: Vec<OwnPlugin>,
    ) -> Result<Self, ShellError> {
        let resuming = self
            .plugins
            .resume(options, &start, &self.editor, own_plugins);
        let log = Arc::clone(&self.terminals.agent);
        let agent_log = Some(log.clone());
        let session = async {
            match self.session.into_inner() {
                Some(session) => session.resume(start.clone(), options.no_change()).await,
                None => Session::start(start.clone(), options.no_change(), agent_log).await,
            }
        };
        let (plugins, session) = tokio::join!(resuming, session);
        let session = unless_missing(session)?;
        Ok(Self::new(
            start,
            session,
            options,
            self.editor,
            (plugins, log),
        ))
    }

    /// Keeps the shell of an executor without requests in memory.
    pub(super) async fn touch_shell(&self) {
        if let Some(session) = self.session.lock().await.as_mut() {
            // The claim replaces a shell that does not answer.
            let _ = session.touch().await;
        }
    }

    fn new(
        start: LaunchContext,
        session: Option<Session>,
        options: &ServeOptions,
        editor: Arc<Editor>,
        (plugins, log): (Plugins, Arc<OutputLog>),
    ) -> Self {
        let directory = session.as_ref().map(|session| &session.working_dir);
        let directory = directory.unwrap_or(&start.working_dir).clone();
        Self {
            activity: Activity::new(),
            background_command: Lock::default(),
            meter: Meter::new(),
            terminals: Terminals::new(start.clone(), log),
            mcp: Mcp::new(start.clone(), plugins.tool_servers()),
            plugins,
            working_dir: Lock::new(directory),
            no_change: options.no_change(),
            shell: Lock::new(session.as_ref().map(|session| session.shell().to_owned())),
            session: Mutex::new(session),
            launch_context: start,
            static_slots: Semaphore::new(MAX_ISOLATED_SHELLS as usize),
            action_slots: Semaphore::new(MAX_ACTIONS),
            editor,
            transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
            stop: CancellationToken::new(),
        }
    }

    /// Name of the shell; `None` in an image without one.
    pub(super) fn shell(&self) -> Option<String> {
        self.shell.lock().clone()
    }

    /// Ends the shell, the plugins and all their processes, also during a command.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        if let Some(session) = self.session.lock().await.take() {
            session.close().await;
        }
        tokio::join!(
            self.plugins.stop(),
            self.mcp.close(),
            self.terminals.close()
        );
        // Each isolated command closes its own shell.
        let _ = self.static_slots.acquire_many(MAX_ISOLATED_SHELLS).await;
    }

    /// Executes an action. It completes even if the client disconnects.
    pub(super) async fn execute(
        self: &Arc<Self>,
        action: Action,
    ) -> Result<Observation, ExecuteError> {
        let executor = Arc::clone(self);
        tokio::spawn(async move { executor.perform(action).await }).await?
    }

    async fn perform(&self, action: Action) -> Result<Observation, ExecuteError> {
        let _slot = self
            .action_slots
            .try_acquire()
            .map_err(|_| ExecuteError::Busy)?;
        let _running = self.activity.begin();
        match action {
            Action::Run(run) => self.run(run).await,
            Action::Read(read) => self.read(read).await,
            Action::Write(write) => self.write(write).await,
            Action::Edit(edit) => self.edit(edit).await,
            Action::RunCell(cell) => self.run_cell(cell).await,
            Action::Browse(browse) => Ok(self.browse(browse).await),
        }
    }

    async fn run(&self, run: Run) -> Result<Observation, ExecuteError> {
        let request = Request {
            command: run.command.trim().to_owned(),
            is_input: run.is_input,
            blocking: run.blocking,
            timeout: run.timeout,
            // Clients cannot handle an `error` observation of a hidden command.
            only_one: !run.hidden,
        };
        let response = if run.is_static {
            self.run_isolated(&request, run.cwd).await
        } else {
            self.run_in_session(&request).await
        };
        let outcome = match response {
            Ok(RunResponse::Outcome(outcome)) => outcome,
            Ok(RunResponse::Refused(text)) => return Ok(Observation::error(text)),
            Err(ExecuteError::Shell(error)) => {
                let text = ExecuteError::Shell(error).to_string();
                if !run.hidden {
                    return Ok(Observation::error(text));
                }
                CommandOutcome {
                    content: text,
                    ..CommandOutcome::default()
                }
            }
            Err(error) => return Err(error),
        };
        Ok(Observation::run(&request.command, run.hidden, outcome))
    }

    async fn run_in_session(&self, request: &Request) -> Result<RunResponse, ExecuteError> {
        let mut guard = self.session.lock().await;
        if guard.is_none() && !self.stop.is_cancelled() {
            // The agent may have added a shell since.
            let start = self.launch_context.clone();
            let log = Some(Arc::clone(&self.terminals.agent));
            let session = Session::start(start, self.no_change, log).await?;
            *self.shell.lock() = Some(session.shell().to_owned());
            *guard = Some(session);
        }
        let session = guard.as_mut().ok_or(ExecuteError::Closed)?;
        let response = tokio::select! {
            response = session.run(request) => response?,
            () = self.stop.cancelled() => return Err(ExecuteError::Closed),
        };
        self.working_dir.lock().clone_from(&session.working_dir);
        *self.background_command.lock() = session.running_command().map(|(ended, usage)| {
            let tracking = background_command::track(Arc::clone(&self.activity), ended, usage);
            AbortOnDropHandle::new(tokio::spawn(tracking))
        });
        Ok(response)
    }

    async fn run_isolated(
        &self,
        request: &Request,
        cwd: Option<String>,
    ) -> Result<RunResponse, ExecuteError> {
        let _slot = self
            .static_slots
            .acquire()
            .await
            .map_err(|_| ExecuteError::Closed)?;
        if self.stop.is_cancelled() {
            return Err(ExecuteError::Closed);
        }
        let mut start = self.launch_context.clone();
        // The Python server also falls back to the initial directory.
        if let Some(cwd) = cwd.map(PathBuf::from) {
            let exists = launch_dir::is_dir(&start.identity, cwd.clone()).await;
            if exists.map_err(ShellError::Directory)? {
                start.working_dir = cwd;
            }
        }
        let mut session = Session::start(start, self.no_change, None).await?;
        let response = tokio::select! {
            response = session.run(request) => response.map_err(ExecuteError::from),
            () = self.stop.cancelled() => Err(ExecuteError::Closed),
        };
        session.close().await;
        response
    }

    /// Cells do not wait for commands; the kernel only follows the shell's directory.
    async fn run_cell(&self, cell: RunCell) -> Result<Observation, ExecuteError> {
        let kernel = self.plugins.jupyter.as_ref();
        let kernel = kernel.ok_or(JupyterError::NotEnabled)?;
        let directory = self.working_dir.lock().clone();
        match kernel.run(&cell, &directory).await {
            Ok(output) => Ok(Observation::run_cell(cell.code, output.text, output.images)),
            Err(JupyterError::NoKernel(text)) => Ok(Observation::error(text)),
            Err(error) => Err(error.into()),
        }
    }

    async fn run_as_user<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ExecuteError> {
        let done = self.launch_context.identity.run(work).await;
        done.map_err(ExecuteError::Identity)
    }
}
