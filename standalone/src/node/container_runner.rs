//! Container runner: all runs of one container, by restart policy and backoff, and its termination.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rustix::process::Signal;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::container::{ContainerStartError, PreparedPod};
use super::image::Image;
use super::kept_root::RootLease;
use super::process::{Exit, Process};
use super::startup_probe::StartupProbe;
use super::status::{PodState, exit_reason, reason, running, terminated, termination, waiting};

const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
/// First delay for a missing Secret or `ConfigMap`, which is often created right after its Pod.
const ENVIRONMENT_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Run time after which the backoff is reset.
const RESET_AFTER: Duration = Duration::from_mins(10);

/// Stop signals of a Pod: `soft` sends SIGTERM or the signal of
/// the image, `hard` SIGKILL.
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
        match self {
            Self::Always => Self::OnFailure,
            other => other,
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

/// Restart backoff: at once, then 10 s, doubling to 5 minutes, as in the kubelet.
#[derive(Debug, Default)]
struct Backoff(Duration);

impl Backoff {
    /// Delay before the next start after a run of length `ran`.
    fn after_run(&mut self, ran: Duration) -> Duration {
        if ran >= RESET_AFTER {
            self.0 = Duration::ZERO;
        }
        let delay = self.0;
        self.0 = (delay * 2).clamp(INITIAL_BACKOFF, MAX_BACKOFF);
        delay
    }

    /// Delay after a failed start, such as a missing image.
    fn after_failure(&mut self, error: &ContainerStartError) -> Duration {
        let first = match error {
            ContainerStartError::Environment(_) => ENVIRONMENT_BACKOFF,
            _ => INITIAL_BACKOFF,
        };
        let delay = self.0.max(first);
        self.0 = (delay * 2).min(MAX_BACKOFF);
        delay
    }
}

pub(crate) struct ContainerRunner<'a> {
    pub pod: &'a PreparedPod,
    pub state: &'a PodState,
    /// Index in the state.
    pub number: usize,
    pub container: &'a Container,
    pub policy: RestartPolicy,
    pub stop: &'a StopSignals,
}

impl ContainerRunner<'_> {
    /// Runs the container until its restart policy is satisfied; true if it succeeded.
    pub(crate) async fn run(self) -> bool {
        let mut backoff = Backoff::default();
        let mut is_restart = false;
        while !self.stop.soft.is_cancelled() {
            let begin = Instant::now();
            let exit = match self.start(is_restart).await {
                Ok(process) => self.wait_with_signals(process).await,
                Err(error) => {
                    self.log_failure(&error);
                    self.wait_to_retry(&error, backoff.after_failure(&error))
                        .await;
                    continue;
                }
            };
            if self.stop.soft.is_cancelled() || !self.policy.restarts_after(exit) {
                return exit.code == 0;
            }
            let delay = backoff.after_run(begin.elapsed());
            self.wait_to_restart(delay).await;
            is_restart = true;
        }
        false
    }

    /// The restart count increases when the restart happens, as with the kubelet.
    async fn start(&self, is_restart: bool) -> Result<Process, ContainerStartError> {
        let image = self.image().await?;
        let lease = self.root_lease().await?;
        // The semaphore is closed only with the node.
        let _permit = self.pod.node.starts.acquire().await;
        let state = self.state;
        let restarts = state.container(self.number, |status| status.restart_count);
        let run = restarts.unwrap_or_default() + i32::from(is_restart);
        let mut container = self.container.clone();
        if let Some(resources) = state.facts().resized.remove(&container.name) {
            container.resources = Some(resources);
        }
        let process = self.pod.start(&container, &image, run, lease.as_ref());
        let process = process.await?;
        self.state.container(self.number, |status| {
            let id = format!("process://{}/{}/{run}", self.pod.uid, status.name);
            status.container_id = Some(id);
            status.restart_count = run;
            status.started = Some(StartupProbe::of(self.container).is_none());
            status.state = Some(running());
        });
        Ok(process)
    }

    /// The image, with the progress of its pull as the message of the waiting container. A stop does not
    /// wait for the pull.
    async fn image(&self) -> Result<Image, ContainerStartError> {
        let report = |message| self.report_waiting(message);
        let image = self.pod.image(self.container, report);
        let image = self.stop.soft.run_until_cancelled(image).await;
        Ok(image.ok_or(ContainerStartError::Stopped)??)
    }

    /// The right to a kept root, if the container has one. A permit for starts is not held meanwhile.
    async fn root_lease(&self) -> Result<Option<Arc<RootLease>>, ContainerStartError> {
        let (report, stop) = (|message| self.report_waiting(message), &self.stop.soft);
        self.pod.root_lease(self.container, stop, report).await
    }

    fn report_waiting(&self, message: String) {
        self.state.container(self.number, |status| {
            status.state = Some(waiting(reason::CREATING, message));
        });
    }

    async fn wait_with_signals(&self, mut process: Process) -> Exit {
        let started = Timestamp::now();
        let mut is_terminating = false;
        let mut has_started = pin!(self.await_startup());
        let mut is_probed = false;
        let exit = loop {
            tokio::select! {
                exit = process.wait() => break exit,
                passed = &mut has_started, if !is_probed => {
                    is_probed = true;
                    if !passed {
                        process.signal(Signal::KILL);
                    }
                }
                () = self.stop.hard.cancelled() => {
                    process.signal(Signal::KILL);
                    break process.wait().await;
                }
                () = self.stop.soft.cancelled(), if !is_terminating => {
                    is_terminating = true;
                    process.stop();
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
        let message = Some(process.finish().await).filter(|message| !message.is_empty());
        self.state.container(self.number, |status| {
            status.state = Some(terminated(ContainerStateTerminated {
                exit_code: exit.code,
                reason: Some(reason_of(exit).to_owned()),
                message,
                started_at: Some(Time(started)),
                finished_at: Some(Time(Timestamp::now())),
                container_id: status.container_id.clone(),
                ..ContainerStateTerminated::default()
            }));
        });
        exit
    }

    /// Waits for the startup probe. Returns false if the container has to be restarted.
    async fn await_startup(&self) -> bool {
        let Some(probe) = StartupProbe::of(self.container) else {
            return true;
        };
        let passed = probe.passes(self.pod.attachment.lease.address).await;
        if passed {
            self.state
                .container(self.number, |status| status.started = Some(true));
        }
        passed
    }

    async fn wait_to_restart(&self, delay: Duration) {
        let (seconds, container, pod) = (delay.as_secs(), &self.container.name, self.pod.name());
        let message =
            format!("back-off {seconds}s restarting failed container={container} pod={pod}");
        self.state.container(self.number, |status| {
            if let Some(end) = termination(status).cloned() {
                status.last_state = Some(terminated(ContainerStateTerminated {
                    container_id: None,
                    ..end
                }));
            }
            if !delay.is_zero() {
                status.state = Some(waiting(reason::CRASH_LOOP, message));
            }
        });
        self.delay(delay).await;
    }

    /// Warns of a failed start, once for each message.
    fn log_failure(&self, error: &ContainerStartError) {
        let (pod, container) = (self.pod.name(), &self.container.name);
        let message = error.to_string();
        let known = self.state.container(self.number, |status| {
            let state = status.state.as_ref();
            state.and_then(|state| state.waiting.as_ref()?.message.clone())
        });
        if known.flatten().as_ref() == Some(&message) {
            tracing::debug!(pod, container, message, "start failed again");
        } else {
            tracing::warn!(pod, container, message, "start failed");
        }
    }

    async fn wait_to_retry(&self, error: &ContainerStartError, delay: Duration) {
        let (now, later) = error.reasons();
        self.state.container(self.number, |status| {
            let state = status.state.as_ref();
            let before = state.and_then(|state| state.waiting.as_ref()?.reason.as_deref());
            let is_repeated = before.is_some_and(|before| before == now || before == later);
            let reason = if is_repeated { later } else { now };
            status.state = Some(waiting(reason, error.to_string()));
        });
        self.delay(delay).await;
    }

    async fn delay(&self, delay: Duration) {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.stop.soft.cancelled() => {}
        }
    }
}

fn reason_of(exit: Exit) -> &'static str {
    if exit.out_of_memory {
        reason::OOM_KILLED
    } else {
        exit_reason(exit.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::environment::EnvironmentError;

    fn exit(code: i32, out_of_memory: bool) -> Exit {
        Exit {
            code,
            out_of_memory,
        }
    }

    #[test]
    fn restart_policy_decides_by_exit_code() {
        for (policy, for_init, well, badly) in [
            (None, RestartPolicy::OnFailure, true, true),
            (Some("OnFailure"), RestartPolicy::OnFailure, false, true),
            (Some("Never"), RestartPolicy::Never, false, false),
        ] {
            let of = RestartPolicy::of(policy);
            assert_eq!(of.restarts_after(exit(0, false)), well, "{policy:?}");
            assert_eq!(of.restarts_after(exit(1, false)), badly, "{policy:?}");
            assert_eq!(of.for_init(), for_init, "{policy:?}");
        }
    }

    #[test]
    fn termination_has_reason_of_kubelet() {
        let exits = [exit(0, false), exit(2, false), exit(137, true)];
        assert_eq!(exits.map(reason_of), ["Completed", "Error", "OOMKilled"]);
    }

    #[test]
    fn backoff_doubles_resets_after_long_run_and_never_skips_a_failed_start() {
        let mut backoff = Backoff::default();
        let mut delays = |runs: u64| -> Vec<u64> {
            let delays = (0..runs).map(|_| backoff.after_run(Duration::from_secs(1)).as_secs());
            delays.collect()
        };
        assert_eq!(delays(8), [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.after_run(RESET_AFTER), Duration::ZERO);
        assert_eq!(backoff.after_run(Duration::ZERO), INITIAL_BACKOFF);
        let mut failed = Backoff::default();
        let no_command = ContainerStartError::NoCommand;
        assert_eq!(failed.after_failure(&no_command), INITIAL_BACKOFF);
        assert_eq!(failed.after_failure(&no_command), INITIAL_BACKOFF * 2);
        let (kind, name) = ("secret", "a".into());
        let missing = EnvironmentError::Missing { kind, name }.into();
        let mut failed = Backoff::default();
        assert_eq!(failed.after_failure(&missing), ENVIRONMENT_BACKOFF);
        assert_eq!(failed.after_failure(&missing), ENVIRONMENT_BACKOFF * 2);
    }
}
