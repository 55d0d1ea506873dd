//! Program of a plugin, kept running: started, watched until it is ready, and started again after a
//! backoff when it ends. The health says how it ended.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Health;
use super::readiness;
use crate::serve::identity::Identity;
use crate::serve::manifest::{ReadinessCheck, Restart};
use crate::serve::output_tail::{OutputTail, describe_end};
use crate::serve::process_group::GroupLeader;

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// Run time after which an exit resets the backoff.
const STABLE_AFTER: Duration = Duration::from_mins(5);
/// Time between the request to end and SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// A program and the way it is kept running.
#[derive(Debug)]
pub(super) struct Program {
    /// Name in texts about it.
    pub(super) name: String,
    /// Has program, arguments, directory, environment and user.
    pub(super) command: Command,
    pub(super) identity: Arc<Identity>,
    /// Address that it listens on, which must be free before.
    pub(super) address: Option<SocketAddr>,
    /// Absent: it is ready as soon as it runs.
    pub(super) readiness: Option<ReadinessCheck>,
    pub(super) restart: Restart,
}

#[derive(Debug, Default)]
pub(super) struct Process {
    health: watch::Sender<Health>,
    running: Mutex<Option<AbortOnDropHandle<()>>>,
    /// Ends the program that runs; the next one has another.
    stop: Mutex<CancellationToken>,
}

/// End of one run.
enum RunEnd {
    Stopped,
    Succeeded,
    Failed(Health),
}

impl Process {
    pub(super) fn start(&self, program: Program) {
        let stop = self.stop.lock().clone();
        let keeping = keep_running(program, self.health.clone(), stop);
        *self.running.lock() = Some(AbortOnDropHandle::new(tokio::spawn(keeping)));
    }

    /// Reports a program that cannot be started at all.
    pub(super) fn fail(&self, reason: String) {
        self.health.send_replace(Health::Failed(reason));
    }

    pub(super) async fn wait_started(&self) {
        let mut health = self.health.subscribe();
        let _ = health.wait_for(|health| *health != Health::Starting).await;
    }

    pub(super) async fn stop(&self) {
        std::mem::take(&mut *self.stop.lock()).cancel();
        let running = self.running.lock().take();
        OptionFuture::from(running).await;
    }

    pub(super) fn health(&self) -> Health {
        self.health.borrow().clone()
    }
}

async fn keep_running(
    mut program: Program,
    health: watch::Sender<Health>,
    stop: CancellationToken,
) {
    let mut backoff = INITIAL_BACKOFF;
    loop {
        let since = Instant::now();
        let problem = match program.run(&health, &stop).await {
            RunEnd::Stopped => return,
            RunEnd::Succeeded if program.restart != Restart::Always => {
                health.send_replace(Health::Ended);
                return;
            }
            RunEnd::Succeeded => {
                let how = describe_end(Ok(ExitStatus::default()));
                Health::Failed(format!("{} {how}", program.name))
            }
            RunEnd::Failed(problem) => problem,
        };
        let will_restart = program.restart != Restart::Never;
        let plugin = &program.name;
        tracing::warn!(plugin, %problem, will_restart, "the program of a plugin is not running");
        health.send_replace(problem);
        if !will_restart {
            return;
        }
        if since.elapsed() >= STABLE_AFTER {
            backoff = INITIAL_BACKOFF;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = stop.cancelled() => return,
        }
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}

impl Program {
    /// Runs the program once, until its end. It and its children are in one process group.
    async fn run(&mut self, health: &watch::Sender<Health>, stop: &CancellationToken) -> RunEnd {
        let (mut leader, tail) = match self.spawn() {
            Ok(started) => started,
            Err(problem) => return RunEnd::Failed(Health::Failed(problem)),
        };
        let ready = readiness::wait(self.address, self.readiness.as_ref());
        let mut ready = std::pin::pin!(ready);
        let mut is_ready = false;
        loop {
            tokio::select! {
                how = leader.wait() => return self.end(how, tail).await,
                outcome = &mut ready, if !is_ready => match outcome {
                    Ok(()) => {
                        is_ready = true;
                        tracing::info!(plugin = self.name, "ready");
                        health.send_replace(Health::Ready);
                    }
                    Err(problem) => {
                        terminate(&mut leader).await;
                        let problem = format!("{} {problem}", self.name);
                        return RunEnd::Failed(Health::Failed(problem));
                    }
                },
                () = stop.cancelled() => {
                    terminate(&mut leader).await;
                    return RunEnd::Stopped;
                }
            }
        }
    }

    fn spawn(&mut self) -> Result<(GroupLeader, OutputTail), String> {
        if let Some(address) = self.address {
            // Another server must not be taken for this one.
            TcpListener::bind(address).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => format!("port {} is in use", address.port()),
                _ => format!("cannot listen on {address}: {error}"),
            })?;
        }
        self.command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let started = self.command.spawn().and_then(|mut child| {
            let mut tail = OutputTail::default();
            let outputs = (child.stdout.take(), child.stderr.take());
            outputs.0.into_iter().for_each(|output| tail.follow(output));
            outputs.1.into_iter().for_each(|errors| tail.follow(errors));
            Ok((GroupLeader::new(child, &self.identity)?, tail))
        });
        started.map_err(|error| {
            let program = self.command.as_std().get_program().to_string_lossy();
            format!("cannot start {program}: {error}")
        })
    }

    async fn end(&self, how: io::Result<ExitStatus>, tail: OutputTail) -> RunEnd {
        if how.as_ref().is_ok_and(ExitStatus::success) {
            return RunEnd::Succeeded;
        }
        RunEnd::Failed(Health::Crashed {
            how: format!("{} {}", self.name, describe_end(how)),
            last_line: tail.last_line().await,
        })
    }
}

async fn terminate(leader: &mut GroupLeader) {
    leader.group().signal(Signal::TERM).await;
    if timeout(STOP_GRACE, leader.wait()).await.is_err() {
        leader.group().signal(Signal::KILL).await;
        let _ = leader.wait().await;
    }
}
