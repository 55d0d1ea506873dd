//! Container runner: all runs of one container, by restart policy and backoff, and its termination.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use rustix::process::Signal;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::container::{ContainerStartError, PreparedPod};
use super::pod_state::{ContainerRef, PodState};
use super::process::{Exit, Process};
use super::status::{ContainerRunState, Termination, reason};

/// Stop signals of a Pod: `soft` sends SIGTERM, `hard` SIGKILL.
#[derive(Debug, Clone, Default)]
pub(crate) struct StopSignals {
    pub soft: CancellationToken,
    pub hard: CancellationToken,
}

/// Restart policy; init containers do not have `Always`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
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

/// Container of a prepared Pod.
#[derive(Debug)]
pub(crate) struct ContainerRunner<'a> {
    pub pod: &'a PreparedPod,
    pub state: &'a PodState,
    pub container_ref: ContainerRef,
    pub container: &'a Container,
    pub policy: RestartPolicy,
    pub stop: &'a StopSignals,
}

impl ContainerRunner<'_> {
    /// Runs the container until its restart policy is satisfied; true if it succeeded.
    pub(crate) async fn run(&self) -> bool {
        let mut backoff = Backoff::default();
        let mut is_restart = false;
        while !self.stop.soft.is_cancelled() {
            let begin = Instant::now();
            let exit = match self.start(is_restart).await {
                Ok(process) => self.wait_with_signals(process).await,
                Err(error) => {
                    tracing::info!(pod = self.pod.name(), container = self.container.name, %error,
                        "start failed");
                    self.wait_to_retry(&error, &mut backoff).await;
                    continue;
                }
            };
            if self.stop.soft.is_cancelled() || !self.policy.restarts_after(exit) {
                return exit.code == 0;
            }
            self.wait_to_restart(backoff.after_run(begin.elapsed()))
                .await;
            is_restart = true;
        }
        false
    }

    /// Starts the container. The restart count increases when the restart happens, as with the
    /// kubelet.
    async fn start(&self, is_restart: bool) -> Result<Process, ContainerStartError> {
        // The semaphore is closed only with the node.
        let _permit = self.pod.node.starts.acquire().await;
        let number = self
            .state
            .container(self.container_ref, |facts| facts.restarts)
            .unwrap_or_default()
            + i32::from(is_restart);
        let process = self.pod.start(self.container, number).await?;
        self.state.container(self.container_ref, |facts| {
            facts.id = format!("{}/{}/{number}", self.pod.uid, facts.name);
            facts.restarts = number;
            facts.state = ContainerRunState::Running {
                since: Timestamp::now(),
            };
        });
        Ok(process)
    }

    /// Waits for the exit and forwards signals.
    async fn wait_with_signals(&self, mut process: Process) -> Exit {
        let started = Timestamp::now();
        let mut is_terminating = false;
        let exit = loop {
            tokio::select! {
                exit = process.wait() => break exit,
                () = self.stop.hard.cancelled() => {
                    process.signal(Signal::KILL);
                    break process.wait().await;
                }
                () = self.stop.soft.cancelled(), if !is_terminating => {
                    is_terminating = true;
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
        let message = process.finish().await;
        let end = Termination {
            message,
            ..termination(exit, started)
        };
        self.state.container(self.container_ref, |facts| {
            facts.state = ContainerRunState::Terminated(end);
        });
        exit
    }

    async fn wait_to_restart(&self, delay: std::time::Duration) {
        let message = format!(
            "back-off {}s restarting failed container={} pod={}",
            delay.as_secs(),
            self.container.name,
            self.pod.name()
        );
        self.state.container(self.container_ref, |facts| {
            if let ContainerRunState::Terminated(end) = &facts.state {
                facts.last = Some(end.clone());
            }
            if !delay.is_zero() {
                facts.state = ContainerRunState::Waiting {
                    reason: reason::CRASH_LOOP,
                    message,
                };
            }
        });
        self.delay(delay).await;
    }

    async fn wait_to_retry(&self, error: &ContainerStartError, backoff: &mut Backoff) {
        let (now, later) = error.reasons();
        let delay = backoff.after_failure();
        let first = self.state.container(self.container_ref, |facts| {
            let waits = matches!(&facts.state, ContainerRunState::Waiting { reason,
                .. } if *reason == now || *reason == later);
            let reason = if waits { later } else { now };
            facts.state = ContainerRunState::Waiting {
                reason,
                message: error.to_string(),
            };
        });
        debug_assert!(first.is_some());
        self.delay(delay).await;
    }

    async fn delay(&self, delay: std::time::Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
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
    fn restart_policy_decides_by_exit_code() {
        let exit = |code| Exit {
            code,
            out_of_memory: false,
        };
        for (policy, well, badly) in [
            (RestartPolicy::Always, true, true),
            (RestartPolicy::OnFailure, false, true),
            (RestartPolicy::Never, false, false),
        ] {
            assert_eq!(policy.restarts_after(exit(0)), well);
            assert_eq!(policy.restarts_after(exit(1)), badly);
        }
        assert_eq!(RestartPolicy::of(None).for_init(), RestartPolicy::OnFailure);
        assert_eq!(
            RestartPolicy::of(Some("Never")).for_init(),
            RestartPolicy::Never
        );
    }

    #[test]
    fn termination_has_reason_of_kubelet() {
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
