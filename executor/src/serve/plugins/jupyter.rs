//! One Python kernel for the action `run_ipython` (`docs/specs/executor.md`, section 5).
//!
//! Cells run one after the other. A kernel that ends, or that ignores an interrupt, is replaced by
//! a new one in the same directory. The observation says so: the agent has lost its variables.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::kernel::{CellOutcome, Kernel};
use self::launch::{Launched, Launcher};
use self::output::Output;
use super::Health;
use super::agent_skills::AgentSkills;
use crate::serve::action::RunCell;
use crate::serve::shell::LaunchContext;

mod kernel;
mod launch;
mod message;
mod observation_text;
mod output;
mod process;
mod zmtp;

/// Kernels that may end before a cell begins until the cell fails.
const MAX_REPLACED: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(crate) enum JupyterError {
    /// Text of the Python server.
    #[error("JupyterRequirement not found. Unable to run IPython action.")]
    NotEnabled,
    #[error("{0}")]
    NoKernel(String),
    #[error("the server is shutting down")]
    Closed,
}

#[derive(Debug)]
pub(crate) struct Jupyter {
    launcher: Launcher,
    state: Mutex<KernelState>,
    /// Path of the Python of the kernel; empty if no kernel has started yet.
    interpreter: Lock<String>,
    health: Lock<Health>,
    stop: CancellationToken,
}

type Launch = AbortOnDropHandle<Result<Launched, JupyterError>>;

#[derive(Debug, Default)]
struct KernelState {
    kernel: Option<Kernel>,
    starting: Option<Launch>,
    /// Cell to run first, once.
    setup: Option<String>,
    /// Text for the next observation.
    notice: Option<String>,
}

impl Jupyter {
    pub(super) fn new(
        start: LaunchContext,
        skills: Option<Arc<AgentSkills>>,
        limit: Duration,
    ) -> Self {
        Self {
            launcher: Launcher {
                start,
                skills,
                limit,
            },
            state: Mutex::default(),
            interpreter: Lock::default(),
            health: Lock::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Continues as another one, which is not started. The kernel stays if it has the same user and
    /// skills and can take the variables.
    pub(super) async fn resume(self, next: Self) -> Self {
        let Some(variables) = self.launcher.changes(&next.launcher) else {
            self.stop().await;
            return next;
        };
        let mut state = self.state.into_inner();
        state.setup = Some(observation_text::change_environment(&variables));
        Self {
            state: Mutex::new(state),
            interpreter: self.interpreter,
            health: self.health,
            ..next
        }
    }

    pub(super) async fn start(&self) {
        let mut state = self.state.lock().await;
        // The first cell reports the error and tries again.
        let _ = self.ensure_kernel(&mut state, None).await;
    }

    /// Ends the kernel. Cells that wait for it get an error.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        let mut state = self.state.lock().await;
        state.starting = None;
        if let Some(kernel) = state.kernel.take() {
            kernel.end().await;
        }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Runs a cell in the directory of the shell and returns the content of its observation. Waits
    /// for a kernel that is starting and for earlier cells. Fails only if no kernel can be started.
    pub(crate) async fn run(
        &self,
        cell: &RunCell,
        directory: &Path,
    ) -> Result<Output, JupyterError> {
        let mut output = tokio::select! {
            output = self.run_in_time(cell, directory) => output?,
            () = self.stop.cancelled() => return Err(JupyterError::Closed),
        };
        let interpreter = self.interpreter.lock();
        let extra = cell
            .include_extra
            .then_some((directory, interpreter.as_str()));
        output.text = observation_text::content(&output.text, extra);
        Ok(output)
    }

    async fn run_in_time(&self, cell: &RunCell, directory: &Path) -> Result<Output, JupyterError> {
        let seconds = cell.timeout.filter(|seconds| *seconds > 0.0);
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let timed_out = |mut output: Output| {
            output.add_line(&observation_text::timed_out(seconds.unwrap_or_default()));
            output
        };
        let Some(mut state) = until(deadline, self.state.lock()).await else {
            return Ok(timed_out(Output::default()));
        };
        let mut replaced = 0;
        loop {
            let Some(kernel) = self.ensure_kernel(&mut state, deadline).await? else {
                return Ok(timed_out(state.with_notice(Output::default())));
            };
            let Ok((ending, output)) = kernel.run_in(directory, &cell.code, deadline).await else {
                self.replace(&mut state).await;
                return Ok(state.with_end_notice(Output::default()));
            };
            match ending {
                CellOutcome::Done => return Ok(state.with_notice(output)),
                // The kernel has not begun the cell, so the next kernel may run it.
                CellOutcome::Gone { begun: false } if replaced < MAX_REPLACED => {
                    self.replace(&mut state).await;
                    replaced += 1;
                }
                CellOutcome::Gone { .. } => {
                    self.replace(&mut state).await;
                    return Ok(state.with_end_notice(output));
                }
                CellOutcome::TimedOut { begun: true } => {
                    if let Some(kernel) = &state.kernel {
                        kernel.process.interrupt().await;
                    }
                    return Ok(timed_out(state.with_notice(output)));
                }
                // An earlier cell still runs and has ignored its interrupt.
                CellOutcome::TimedOut { begun: false } => {
                    self.replace(&mut state).await;
                    return Ok(state.with_end_notice(timed_out(output)));
                }
            }
        }
    }

    /// Starts a kernel unless one runs. Returns it, or `None` if it is not ready at the deadline.
    async fn ensure_kernel<'a>(
        &self,
        state: &'a mut KernelState,
        deadline: Option<Instant>,
    ) -> Result<Option<&'a mut Kernel>, JupyterError> {
        if state.kernel.as_ref().and_then(Kernel::ended).is_some() {
            self.replace(state).await;
        }
        if !self.set_up(state).await {
            self.replace(state).await;
            state.notice = None;
        }
        if state.kernel.is_some() {
            return Ok(state.kernel.as_mut());
        }
        let starting = state.starting.get_or_insert_with(|| self.launch());
        let Some(launched) = until(deadline, starting).await else {
            return Ok(None);
        };
        state.starting = None;
        let launched = launched.unwrap_or(Err(JupyterError::Closed));
        *self.health.lock() = match &launched {
            Ok(_) => Health::Ready,
            Err(error) => Health::Failed(error.to_string()),
        };
        let launched = launched?;
        *self.interpreter.lock() = launched.interpreter;
        Ok(Some(state.kernel.insert(launched.kernel)))
    }

    /// Runs the setup of the kernel. Returns false if it fails.
    async fn set_up(&self, state: &mut KernelState) -> bool {
        let (Some(setup), Some(kernel)) = (state.setup.take(), &mut state.kernel) else {
            return true;
        };
        let deadline = Some(Instant::now() + self.launcher.limit);
        let outcome = kernel.run(&setup, deadline).await;
        outcome
            .is_ok_and(|(outcome, output)| outcome == CellOutcome::Done && output.text.is_empty())
    }

    fn launch(&self) -> Launch {
        *self.health.lock() = Health::Starting;
        AbortOnDropHandle::new(tokio::spawn(self.launcher.clone().launch()))
    }

    /// Kills the kernel and launches the next one.
    async fn replace(&self, state: &mut KernelState) {
        let Some(kernel) = state.kernel.take() else {
            return;
        };
        let unresponsive = || "it did not respond to the interrupt".to_owned();
        let why = kernel.ended().map_or_else(unresponsive, |ended| ended.how);
        state.notice = Some(observation_text::restarted(&why));
        kernel.end().await;
        state.starting = Some(self.launch());
    }
}

impl KernelState {
    /// Puts the notice in front of the output of the cell.
    fn with_notice(&mut self, mut output: Output) -> Output {
        if let Some(notice) = self.notice.take() {
            output.text = format!("{notice}\n{}", output.text);
        }
        output
    }

    /// Appends the notice: the kernel has ended during the cell.
    fn with_end_notice(&mut self, mut output: Output) -> Output {
        if let Some(notice) = self.notice.take() {
            output.add_line(&notice);
        }
        output
    }
}

async fn until<T>(deadline: Option<Instant>, work: impl Future<Output = T>) -> Option<T> {
    match deadline {
        None => Some(work.await),
        Some(deadline) => tokio::time::timeout_at(deadline, work).await.ok(),
    }
}
