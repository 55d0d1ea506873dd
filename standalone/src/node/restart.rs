//! One container through all its starts: restart policy, back-off, and the end by signal.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use rustix::process::Signal;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::board::{Board, Place};
use super::container::{Prepared, StartError};
use super::process::{Exit, Process};
use super::status::{State, Termination, reason};

/// How a Pod is told to end: `soft` asks with SIGTERM, `hard` kills.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    pub soft: CancellationToken,
    pub hard: CancellationToken,
}

/// `restartPolicy`, for init containers without its `Always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Always,
    OnFailure,
    Never,
}

impl Policy {
    pub(crate) fn of(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    pub(crate) fn for_init(self) -> Self {
        if self == Self::Always {
            Self::OnFailure
        } else {
            self
        }
    }

    fn restarts_after(self, exit: Exit) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit.code != 0,
            Self::Never => false,
        }
    }
}

/// One container of a prepared Pod.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub pod: &'a Prepared,
    pub board: &'a Board,
    pub place: Place,
    pub container: &'a Container,
    pub policy: Policy,
    pub stop: &'a Stop,
}

impl Runner<'_> {
    /// Runs the container until it need not be started again; true if it ended well.
    pub(crate) async fn run(&self) -> bool {
        let mut backoff = Backoff::default();
        let mut again = false;
        while !self.stop.soft.is_cancelled() {
            let begin = Instant::now();
            let exit = match self.start(again).await {
                Ok(process) => self.attend(process).await,
                Err(error) => {
                    tracing::info!(pod = self.pod.name(), container = self.container.name, %error, "start failed");
                    self.wait_to_retry(&error, &mut backoff).await;
                    continue;
                }
            };
            if self.stop.soft.is_cancelled() || !self.policy.restarts_after(exit) {
                return exit.code == 0;
            }
            self.wait_to_restart(backoff.after_run(begin.elapsed()))
                .await;
            again = true;
        }
        false
    }

    /// Starts the container. As with the kubelet, a restart counts from when it has happened, not while
    /// it is waited for.
    async fn start(&self, again: bool) -> Result<Process, StartError> {
        // Closed only when the node is; then the container is not needed either.
        let _permit = self.pod.node.starts.acquire().await;
        let number = self
            .board
            .container(self.place, |facts| facts.restarts)
            .unwrap_or_default()
            + i32::from(again);
        let process = self.pod.start(self.container, number).await?;
        self.board.container(self.place, |facts| {
            facts.id = format!("{}/{}/{number}", self.pod.uid, facts.name);
            facts.restarts = number;
            facts.state = State::Running {
                since: Timestamp::now(),
            };
        });
        Ok(process)
    }

    /// Waits for the end and passes signals on.
    async fn attend(&self, mut process: Process) -> Exit {
        let started = Timestamp::now();
        let mut asked = false;
        let exit = loop {
            tokio::select! {
                exit = process.wait() => break exit,
                () = self.stop.hard.cancelled() => {
                    process.signal(Signal::KILL);
                    break process.wait().await;
                }
                () = self.stop.soft.cancelled(), if !asked => {
                    asked = true;
                    process.signal(Signal::TERM);
                }
            }
        };
        let exit = exit.unwrap_or_else(|error| {
            tracing::error!(%error, "exit status lost");
            Exit {
                code: 255,
                out_of_memory: false,
            }
        });
        let said = process.finish().await;
        let end = Termination {
            message: said,
            ..termination(exit, started)
        };
        self.board
            .container(self.place, |facts| facts.state = State::Terminated(end));
        exit
    }

    async fn wait_to_restart(&self, pause: std::time::Duration) {
        let message = format!(
            "back-off {}s restarting failed container={} pod={}",
            pause.as_secs(),
            self.container.name,
            self.pod.name()
        );
        self.board.container(self.place, |facts| {
            if let State::Terminated(end) = &facts.state {
                facts.last = Some(end.clone());
            }
            if !pause.is_zero() {
                facts.state = State::Waiting {
                    reason: reason::CRASH_LOOP,
                    message,
                };
            }
        });
        self.pause(pause).await;
    }

    async fn wait_to_retry(&self, error: &StartError, backoff: &mut Backoff) {
        let (now, later) = error.reasons();
        let pause = backoff.after_failure();
        let first = self.board.container(self.place, |facts| {
            let waits = matches!(&facts.state, State::Waiting { reason, .. } if *reason == now || *reason == later);
            let reason = if waits { later } else { now };
            facts.state = State::Waiting { reason, message: error.to_string() };
        });
        debug_assert!(first.is_some());
        self.pause(pause).await;
    }

    async fn pause(&self, pause: std::time::Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.stop.soft.cancelled() => {}
        }
    }
}

fn termination(exit: Exit, started: Timestamp) -> Termination {
    let reason = match exit {
        Exit {
            out_of_memory: true,
            ..
        } => reason::OOM_KILLED,
        Exit { code: 0, .. } => reason::COMPLETED,
        Exit { .. } => reason::ERROR,
    };
    let finished = Timestamp::now();
    Termination {
        code: exit.code,
        reason,
        message: String::new(),
        started,
        finished,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_by_exit_code() {
        let exit = |code| Exit {
            code,
            out_of_memory: false,
        };
        for (policy, well, badly) in [
            (Policy::Always, true, true),
            (Policy::OnFailure, false, true),
            (Policy::Never, false, false),
        ] {
            assert_eq!(policy.restarts_after(exit(0)), well);
            assert_eq!(policy.restarts_after(exit(1)), badly);
        }
        assert_eq!(Policy::of(None).for_init(), Policy::OnFailure);
        assert_eq!(Policy::of(Some("Never")).for_init(), Policy::Never);
    }

    #[test]
    fn ends_have_the_kubelets_reasons() {
        let reason = |code, out_of_memory| {
            termination(
                Exit {
                    code,
                    out_of_memory,
                },
                Timestamp::UNIX_EPOCH,
            )
            .reason
        };
        assert_eq!(reason(0, false), "Completed");
        assert_eq!(reason(2, false), "Error");
        assert_eq!(reason(137, true), "OOMKilled");
    }
}
