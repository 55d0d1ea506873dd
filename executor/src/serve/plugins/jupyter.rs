//! Jupyter: one Python kernel for the action `run_ipython` (spec 5), spoken to directly.
//!
//! Cells run one after the other. A kernel that ends, or that neither finishes nor heeds an
//! interrupt, is replaced at once by one with the same skills in the same directory, and the answer
//! says so: an agent must know that its variables are gone.

use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex as Lock;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::kernel::{Ending, Kernel, KernelError};
pub(in crate::serve) use self::output::Output;
use super::agent_skills::AgentSkills;
use super::{Health, Name, Plugin, Work};
use crate::serve::shell::Start;

mod interpreter;
mod kernel;
mod launch;
mod message;
mod output;
mod pipe;
mod process;
mod text;
mod zmtp;

pub(in crate::serve) use self::text::content;

/// Kernels that may end on the way to one cell before it is given up.
const MAX_REPLACED: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum JupyterError {
    /// The original's words.
    #[error("JupyterRequirement not found. Unable to run IPython action.")]
    Absent,
    #[error("{0}")]
    NoKernel(String),
    #[error("the server is shutting down")]
    Closed,
}

/// What came of a cell.
#[derive(Debug)]
pub(in crate::serve) struct Answer {
    pub(in crate::serve) output: Output,
    /// Path of the Python that ran it; empty if none has yet.
    pub(in crate::serve) interpreter: String,
}

#[derive(Debug)]
pub(in crate::serve) struct Jupyter {
    launcher: launch::Launcher,
    state: Mutex<State>,
    interpreter: Lock<String>,
    health: Lock<Health>,
    stop: CancellationToken,
}

type Launch = AbortOnDropHandle<Result<launch::Launched, JupyterError>>;

#[derive(Debug, Default)]
struct State {
    kernel: Option<Kernel>,
    starting: Option<Launch>,
    /// Where the shell was when the kernel last was told.
    directory: Option<PathBuf>,
    /// For the next answer.
    notice: Option<String>,
}

/// What a cell is to be run with.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct Request<'a> {
    pub(in crate::serve) code: &'a str,
    /// Seconds; absent and zero mean none.
    pub(in crate::serve) timeout: Option<f64>,
    /// Of the shell.
    pub(in crate::serve) directory: &'a Path,
}

impl Jupyter {
    pub(super) fn new(start: Start, skills: Option<Arc<AgentSkills>>, limit: Duration) -> Self {
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

    /// Runs a cell. Waits for the kernel, if it is still on its way, and for cells before this one.
    ///
    /// # Errors
    /// If there is no kernel and none can be started. Whatever else happens is in the answer.
    pub(in crate::serve) async fn run(&self, request: Request<'_>) -> Result<Answer, JupyterError> {
        let output = tokio::select! {
            output = self.run_in_time(request) => output?,
            () = self.stop.cancelled() => return Err(JupyterError::Closed),
        };
        Ok(Answer {
            output,
            interpreter: self.interpreter.lock().clone(),
        })
    }

    async fn run_in_time(&self, request: Request<'_>) -> Result<Output, JupyterError> {
        let seconds = request.timeout.filter(|seconds| *seconds > 0.0);
        let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let timed_out = |mut output: Output| {
            text::add_line(
                &mut output.text,
                &text::timed_out(seconds.unwrap_or_default()),
            );
            output
        };
        let Some(mut state) = until(deadline, self.state.lock()).await else {
            return Ok(timed_out(Output::default()));
        };
        let mut replaced = 0;
        loop {
            if !self.is_ready(&mut state, deadline).await? {
                return Ok(timed_out(state.told(Output::default())));
            }
            let Ok((ending, output)) = state.run(request, deadline).await else {
                self.replace(&mut state).await;
                return Ok(state.told_after(Output::default()));
            };
            match ending {
                Ending::Done => return Ok(state.told(output)),
                // It never heard of this cell, so the next kernel may run it.
                Ending::Gone { begun: false } if replaced < MAX_REPLACED => {
                    self.replace(&mut state).await;
                    replaced += 1;
                }
                Ending::Gone { .. } => {
                    self.replace(&mut state).await;
                    return Ok(state.told_after(output));
                }
                Ending::TimedOut { begun: true } => {
                    state.interrupt().await;
                    return Ok(timed_out(state.told(output)));
                }
                // Another cell still runs, and has not heeded its interrupt.
                Ending::TimedOut { begun: false } => {
                    self.replace(&mut state).await;
                    return Ok(state.told_after(timed_out(output)));
                }
            }
        }
    }

    /// Sees to it that there is a kernel; whether there is one in time.
    async fn is_ready(
        &self,
        state: &mut MutexGuard<'_, State>,
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

    /// Ends the kernel, whatever it does, and begins with the next one.
    async fn replace(&self, state: &mut MutexGuard<'_, State>) {
        let Some(kernel) = state.kernel.take() else {
            return;
        };
        state.notice = Some(if kernel.is_gone() {
            text::restarted(&kernel.how_it_ended())
        } else {
            text::restarted("it did not react")
        });
        kernel.end().await;
        state.starting = Some(self.launch());
    }
}

impl State {
    /// Runs code in the directory that the shell is in.
    ///
    /// # Errors
    /// If the kernel does not take requests; half of one may be on its way.
    async fn run(
        &mut self,
        request: Request<'_>,
        deadline: Option<Instant>,
    ) -> Result<(Ending, Output), KernelError> {
        let Some(kernel) = &mut self.kernel else {
            return Ok((Ending::Gone { begun: false }, Output::default()));
        };
        if self.directory.as_deref() != Some(request.directory) {
            let change = text::change_directory(request.directory);
            match kernel.run(&change, deadline).await? {
                (Ending::Done, _) => self.directory = Some(request.directory.to_path_buf()),
                (Ending::TimedOut { .. }, output) => {
                    return Ok((Ending::TimedOut { begun: false }, output));
                }
                (Ending::Gone { .. }, output) => {
                    return Ok((Ending::Gone { begun: false }, output));
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

    /// What there is to say about the kernel comes before what the cell has written.
    fn told(&mut self, mut output: Output) -> Output {
        if let Some(mut notice) = self.notice.take() {
            let _ = write!(notice, "\n{}", output.text);
            output.text = notice;
        }
        output
    }

    /// The kernel has ended during the cell.
    fn told_after(&mut self, mut output: Output) -> Output {
        if let Some(notice) = self.notice.take() {
            text::add_line(&mut output.text, &notice);
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
    fn name(&self) -> Name {
        Name::Jupyter
    }

    fn start(&self) -> Work<'_, ()> {
        Box::pin(async {
            let mut state = self.state.lock().await;
            // The first cell says what is wrong, and tries again.
            let _ = self.is_ready(&mut state, None).await;
        })
    }

    fn stop(&self) -> Work<'_, ()> {
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
