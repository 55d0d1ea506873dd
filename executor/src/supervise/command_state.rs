//! Command state, shared by the supervisor and the control calls that wait for it.

use std::time::Duration;

use crds::contract::control::{ReadyReport, SupervisorState};
use crds::contract::persistence::KeptState;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct CommandState(watch::Sender<ReadyReport>);

impl CommandState {
    pub(super) fn dormant() -> Self {
        Self(watch::Sender::new(SupervisorState::Dormant.into()))
    }

    pub(super) fn set(&self, state: SupervisorState, detail: Option<String>) {
        self.0.send_modify(|report| {
            report.state = state;
            report.detail = detail;
        });
    }

    /// Reports whether the prestarted program became the command.
    pub(super) fn report_handover(&self, succeeded: bool) {
        self.0
            .send_modify(|report| report.prestarted = Some(succeeded));
    }

    /// Reports what this run of the container began with, and the id of its processes.
    pub(super) fn report_start(&self, restored: Option<KeptState>, processes_id: &str) {
        self.0.send_modify(|report| {
            report.restored = restored;
            report.processes_id = Some(processes_id.to_owned());
        });
    }

    /// Obstacle that keeps the prestarted program of a dormant Pod from being warm; `None` if it is warm.
    pub(super) fn report_warmth(&self, problem: Option<String>) {
        self.0.send_if_modified(|report| {
            let is_dormant = report.state == SupervisorState::Dormant;
            is_dormant && std::mem::replace(&mut report.detail, problem) != report.detail
        });
    }

    /// Returns whether nothing has to start before the init message.
    pub(super) fn is_warm(&self) -> bool {
        let report = self.0.borrow();
        report.state != SupervisorState::Dormant || report.detail.is_none()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.borrow().state == SupervisorState::Ready
    }

    pub(super) fn report(&self) -> ReadyReport {
        self.0.borrow().clone()
    }

    /// Returns the report once the command is ready or has ended, or after `wait`.
    pub(super) async fn wait_settled(&self, wait: Duration) -> ReadyReport {
        let mut reports = self.0.subscribe();
        let settled = reports.wait_for(|report| {
            matches!(
                report.state,
                SupervisorState::Ready | SupervisorState::Exited
            )
        });
        let _ = tokio::time::timeout(wait, settled).await;
        self.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wait_settled_returns_on_readiness_or_timeout() {
        let lifecycle = CommandState::dormant();
        let report = lifecycle.wait_settled(Duration::from_secs(1)).await;
        assert_eq!(report.state, SupervisorState::Dormant);
        let (report, ()) = tokio::join!(lifecycle.wait_settled(Duration::from_mins(1)), async {
            lifecycle.set(SupervisorState::Starting, None);
            tokio::task::yield_now().await;
            lifecycle.set(SupervisorState::Ready, None);
        });
        assert_eq!(report.state, SupervisorState::Ready);
    }
}
