//! Terminals of people and programs outside, besides the agent's shell
//! (`docs/specs/executor.md`, section 13).
//!
//! A terminal is a program with its scrollback. Viewers connect and leave; it goes on without them,
//! also through a pause that keeps processes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use self::program::Program;
use self::run::Running;
use super::output_log::OutputLog;
use super::private_dir;
use super::shell::LaunchContext;

pub(super) use self::message::{
    ClientMessage, MAX_MESSAGE_BYTES, Status, TerminalSize, output_message,
};
pub(super) use self::program::ProgramError;
pub(super) use self::request::TerminalRequest;
pub(super) use self::terminal::{SizeChange, Terminal, TerminalInfo};

mod exit;
mod message;
mod outputs;
mod program;
mod request;
mod run;
mod terminal;

/// Programs at once.
const MAX_RUNNING: usize = 32;
/// Terminals that are kept, exited ones included.
const MAX_KEPT: usize = 64;
/// Time for the end of a program that is killed, and for viewers to get the rest.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for viewers to be told that the server ends or is saved.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    #[error("at most {MAX_RUNNING} terminals can run at once")]
    TooMany,
    #[error("cannot read random bytes from the operating system: {0}")]
    Random(#[source] std::io::Error),
    #[error(transparent)]
    Program(#[from] ProgramError),
}

#[derive(Debug)]
pub(super) struct Terminals {
    context: LaunchContext,
    slots: Arc<Semaphore>,
    /// In order of creation.
    kept: Arc<Mutex<Vec<Arc<Terminal>>>>,
    /// Output of the agent's shell.
    pub(super) agent: Arc<OutputLog>,
    /// Ends the present connections; those to come have another.
    connections: Mutex<CancellationToken>,
}

impl Terminals {
    pub(super) fn new(context: LaunchContext, agent: Arc<OutputLog>) -> Self {
        Self {
            context,
            slots: Arc::new(Semaphore::new(MAX_RUNNING)),
            kept: Arc::default(),
            agent,
            connections: Mutex::default(),
        }
    }

    /// Starts a program.
    pub(super) async fn create(
        &self,
        request: &TerminalRequest,
    ) -> Result<Arc<Terminal>, CreateError> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        let slot = slot.map_err(|_| CreateError::TooMany)?;
        let id = private_dir::token().map_err(CreateError::Random)?;
        let command = program::resolve_command(request, &self.context).await?;
        let started = Program::start(&command, request, &self.context).await?;
        let (terminal, running) = run::attach(id, command, request, started);
        self.keep(Arc::clone(&terminal));
        let kept = Arc::clone(&self.kept);
        tokio::spawn(run(Arc::clone(&terminal), running, kept, slot));
        Ok(terminal)
    }

    /// Adds a terminal, in place of the oldest one that has exited if there are too many.
    fn keep(&self, terminal: Arc<Terminal>) {
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_KEPT {
            let is_over = |old: &Arc<Terminal>| old.exit().is_some() && old.output.readers() == 0;
            let oldest = kept.iter().position(is_over);
            // Fewer than the limit run, so there is one that has exited.
            let oldest = oldest.or_else(|| kept.iter().position(|old| old.exit().is_some()));
            if let Some(oldest) = oldest {
                kept.remove(oldest).deleted.cancel();
            }
        }
        kept.push(terminal);
    }

    pub(super) fn list(&self) -> Vec<TerminalInfo> {
        self.kept
            .lock()
            .iter()
            .map(|terminal| terminal.info())
            .collect()
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Terminal>> {
        let kept = self.kept.lock();
        kept.iter().find(|terminal| terminal.id == id).cloned()
    }

    /// Ends a terminal and its program. `false` if there is none of this id.
    pub(super) async fn delete(&self, id: &str) -> bool {
        let Some(terminal) = self.get(id) else {
            return false;
        };
        forget(&self.kept, &terminal);
        terminal.deleted.cancel();
        let _ = tokio::time::timeout(END_TIMEOUT, terminal.wait_exited()).await;
        true
    }

    /// Cancelled when the present connections have to end.
    pub(super) fn connection(&self) -> CancellationToken {
        self.connections.lock().clone()
    }

    /// Ends all connections; programs go on.
    pub(super) async fn disconnect(&self) {
        std::mem::take(&mut *self.connections.lock()).cancel();
        let terminals = self.kept.lock().clone();
        let logs = terminals.iter().map(|terminal| &terminal.output);
        let gone = logs
            .chain([&self.agent])
            .map(|log| log.wait_without_readers());
        let gone = futures::future::join_all(gone);
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, gone).await;
    }

    /// Ends all programs and connections.
    pub(super) async fn close(&self) {
        self.slots.close();
        let terminals = self.kept.lock().clone();
        for terminal in &terminals {
            terminal.deleted.cancel();
        }
        let ended = terminals.iter().map(|terminal| terminal.wait_exited());
        let ended = futures::future::join_all(ended);
        let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
        self.disconnect().await;
    }
}

/// Runs the program of a terminal, and keeps the terminal for as long as viewers may want its end.
async fn run(
    terminal: Arc<Terminal>,
    running: Running,
    kept: Arc<Mutex<Vec<Arc<Terminal>>>>,
    slot: OwnedSemaphorePermit,
) {
    let copying = running.until_exit(&terminal).await;
    drop(slot);
    terminal.wait_unneeded().await;
    forget(&kept, &terminal);
    drop(copying);
    // Viewers that are still there get what is in the scrollback.
    terminal.output.end();
}

fn forget(kept: &Mutex<Vec<Arc<Terminal>>>, terminal: &Arc<Terminal>) {
    kept.lock().retain(|other| !Arc::ptr_eq(other, terminal));
}
