//! One Python kernel for the action `run_ipython` (`docs/specs/executor.md`, section 5).
//!
//! Cells run one after the other. A kernel that ends, or that ignores an interrupt, is replaced by
//! a new one in the same directory. The observation says so: the agent has lost its variables.

use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(in crate::serve) use self::cell::{CellRequest, CellResult, JupyterError};
use self::kernel::{CellOutcome, Kernel, KernelError};
pub(in crate::serve) use self::output::Output;
use super::agent_skills::AgentSkills;
use super::name::PluginName;
use super::plugin::{Health, Plugin, PluginFuture};
use crate::serve::shell::LaunchContext;

mod cell;
mod interpreter;
mod kernel;
mod launch;
mod message;
mod observation_text;
mod output;
mod output_pipe;
mod process;
mod zmtp;

pub(in crate::serve) use self::observation_text::content;

/// Kernels that may end before a cell begins until the cell fails.
const MAX_REPLACED: usize = 3;

#[derive(Debug)]
pub(in crate::serve) struct Jupyter {
    launcher: launch::Launcher,
    state: Mutex<KernelState>,
    interpreter: Lock<String>,
    health: Lock<Health>,
    stop: CancellationToken,
}

type Launch = AbortOnDropHandle<Result<launch::Launched, JupyterError>>;

#[derive(Debug, Default)]
struct KernelState {
    kernel: Option<Kernel>,
    starting: Option<Launch>,
    /// Directory of the shell that the kernel has last changed to.
    directory: Option<PathBuf>,
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
            launcher: launch::Launcher {
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

    /// Runs a cell. Waits for a kernel that is starting and for earlier cells.
    ///
    /// # Errors
    /// If no kernel can be started. All other failures are part of the output.
    pub(in crate::serve) async fn run(
        &self,
        request: CellRequest<'_>,
    ) -> Result<CellResult, JupyterError> {
        let output = tokio::select! {
            output = self.run_in_time(request) => output?,
            () = self.stop.cancelled() => return Err(JupyterError::Closed),
        };
        Ok(CellResult {
            output,
            interpreter: self.interpreter.lock().clone(),
        })
    }

    async fn run_in_time(&self, request: CellRequest<'_>) -> Result<Output, JupyterError> {
        let seconds = request.timeout.filter(|seconds| *seconds > 0.0);
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let timed_out = |mut output: Output| {
            observation_text::add_line(
                &mut output.text,
                &observation_text::timed_out(seconds.unwrap_or_default()),
            );
            output
        };
        let Some(mut state) = until(deadline, self.state.lock()).await else {
            return Ok(timed_out(Output::default()));
        };
        let mut replaced = 0;
        loop {
            if !self.ensure_kernel(&mut state, deadline).await? {
                return Ok(timed_out(state.with_notice(Output::default())));
            }
            let Ok((ending, output)) = state.run(request, deadline).await else {
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
                    state.interrupt().await;
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

    /// Starts a kernel unless one runs. Returns whether it is ready before the deadline.
    async fn ensure_kernel(
        &self,
        state: &mut MutexGuard<'_, KernelState>,
        deadline: Option<Instant>,
    ) -> Result<bool, JupyterError> {
        if state.kernel.as_ref().is_some_and(Kernel::is_gone) {
            self.replace(state).await;
        }
        if state.kernel.is_some() {
            return Ok(true);
        }
        let starting = state.starting.get_or_insert_with(|| self.launch());
        let Some(launched) = until(deadline, starting).await else {
            return Ok(false);
        };
        state.starting = None;
        let launched = launched.unwrap_or(Err(JupyterError::Closed));
        *self.health.lock() = match &launched {
            Ok(_) => Health::Ready,
            Err(error) => Health::Failed(error.to_string()),
        };
        let launched = launched?;
        *self.interpreter.lock() = launched.interpreter;
        state.kernel = Some(launched.kernel);
        state.directory = None;
        Ok(true)
    }

    fn launch(&self) -> Launch {
        *self.health.lock() = Health::Starting;
        AbortOnDropHandle::new(tokio::spawn(self.launcher.clone().launch()))
    }

    /// Kills the kernel and launches the next one.
    async fn replace(&self, state: &mut MutexGuard<'_, KernelState>) {
        let Some(kernel) = state.kernel.take() else {
            return;
        };
        state.notice = Some(if kernel.is_gone() {
            observation_text::restarted(&kernel.how_it_ended())
        } else {
            observation_text::restarted("it did not respond to the interrupt")
        });
        kernel.end().await;
        state.starting = Some(self.launch());
    }
}

impl KernelState {
    /// Runs code in the directory of the shell.
    ///
    /// # Errors If the kernel does not accept requests. One may be sent in part; the kernel has to
    /// be replaced.
    async fn run(
        &mut self,
        request: CellRequest<'_>,
        deadline: Option<Instant>,
    ) -> Result<(CellOutcome, Output), KernelError> {
        let Some(kernel) = &mut self.kernel else {
            return Ok((CellOutcome::Gone { begun: false }, Output::default()));
        };
        if self.directory.as_deref() != Some(request.directory) {
            let change = observation_text::change_directory(request.directory);
            match kernel.run(&change, deadline).await? {
                (CellOutcome::Done, _) => self.directory = Some(request.directory.to_path_buf()),
                (CellOutcome::TimedOut { .. }, output) => {
                    return Ok((CellOutcome::TimedOut { begun: false }, output));
                }
                (CellOutcome::Gone { .. }, output) => {
                    return Ok((CellOutcome::Gone { begun: false }, output));
                }
            }
        }
        kernel.run(request.code, deadline).await
    }

    async fn interrupt(&self) {
        if let Some(kernel) = &self.kernel {
            kernel.process.interrupt().await;
        }
    }

    /// Puts the notice in front of the output of the cell.
    fn with_notice(&mut self, mut output: Output) -> Output {
        if let Some(mut notice) = self.notice.take() {
            let _ = write!(notice, "\n{}", output.text);
            output.text = notice;
        }
        output
    }

    /// Appends the notice: the kernel has ended during the cell.
    fn with_end_notice(&mut self, mut output: Output) -> Output {
        if let Some(notice) = self.notice.take() {
            observation_text::add_line(&mut output.text, &notice);
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

impl Plugin for Jupyter {
    fn name(&self) -> PluginName {
        PluginName::Jupyter
    }

    fn start(&self) -> PluginFuture<'_, ()> {
        Box::pin(async {
            let mut state = self.state.lock().await;
            // The first cell reports the error and tries again.
            let _ = self.ensure_kernel(&mut state, None).await;
        })
    }

    fn stop(&self) -> PluginFuture<'_, ()> {
        Box::pin(async {
            self.stop.cancel();
            let mut state = self.state.lock().await;
            state.starting = None;
            if let Some(kernel) = state.kernel.take() {
                kernel.end().await;
            }
        })
    }

    fn health(&self) -> Health {
        self.health.lock().clone()
    }
}
