//! Where the supervised command stands, for everybody who waits for it.

use std::time::Duration;

use crds::contract::control::{ReadyReport, SupervisorState};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct Lifecycle(watch::Sender<ReadyReport>);

impl Lifecycle {
    pub(super) fn dormant() -> Self {
        let report = ReadyReport {
            state: SupervisorState::Dormant,
            detail: None,
        };
        Self(watch::Sender::new(report))
    }

    pub(super) fn set(&self, state: SupervisorState, detail: Option<String>) {
        self.0.send_replace(ReadyReport { state, detail });
    }

    pub(super) fn report(&self) -> ReadyReport {
        self.0.borrow().clone()
    }

    /// The report once there is nothing more to wait for, or after `wait`.
    pub(super) async fn settled(&self, wait: Duration) -> ReadyReport {
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
    async fn a_wait_ends_with_the_news_or_with_its_time() {
        let lifecycle = Lifecycle::dormant();
        let report = lifecycle.settled(Duration::from_secs(1)).await;
        assert_eq!(report.state, SupervisorState::Dormant);
        let (report, ()) = tokio::join!(lifecycle.settled(Duration::from_mins(1)), async {
            lifecycle.set(SupervisorState::Starting, None);
            tokio::task::yield_now().await;
            lifecycle.set(SupervisorState::Ready, None);
        });
        assert_eq!(report.state, SupervisorState::Ready);
    }
}
