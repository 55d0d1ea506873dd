//! The one save of this run of the container: its request, and the report that calls wait for.

use std::time::Duration;

use crds::contract::persistence::{KeptState, SaveReport, SaveRequest, SaveState};
use tokio::sync::{mpsc, watch};

/// Control server's side of a save.
#[derive(Debug, Clone)]
pub(super) struct SaveCalls {
    requests: mpsc::Sender<SaveRequest>,
    report: watch::Sender<SaveReport>,
}

impl SaveCalls {
    /// The supervisor receives at most one request.
    pub(super) fn new() -> (Self, mpsc::Receiver<SaveRequest>) {
        let (requests, receiver) = mpsc::channel(1);
        let report = watch::Sender::new(SaveReport {
            state: SaveState::Saving,
            kept: None,
        });
        (Self { requests, report }, receiver)
    }

    /// Begins the save, unless an earlier call has.
    pub(super) fn begin(&self, request: SaveRequest) {
        // A full channel holds the request of an earlier call; the supervisor closes it afterwards.
        let _ = self.requests.try_send(request);
    }

    pub(super) fn finish(&self, kept: KeptState) {
        self.report.send_replace(SaveReport {
            state: SaveState::Done,
            kept: Some(kept),
        });
    }

    /// Returns the report once the save has ended, or after `wait`.
    pub(super) async fn wait_done(&self, wait: Duration) -> SaveReport {
        let mut reports = self.report.subscribe();
        let done = reports.wait_for(|report| report.state == SaveState::Done);
        let _ = tokio::time::timeout(wait, done).await;
        self.report.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use crds::contract::persistence::PersistenceLevel;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_calls_report_on_one_save() {
        let (calls, mut requests) = SaveCalls::new();
        let request = |image: &str| SaveRequest {
            image: image.into(),
            stop_seconds: 1,
        };
        calls.begin(request("first"));
        calls.begin(request("second"));
        assert_eq!(requests.recv().await, Some(request("first")));
        requests.close();
        calls.begin(request("third"));
        assert_eq!(requests.recv().await, None);
        let report = calls.wait_done(Duration::from_secs(1)).await;
        assert_eq!(report.state, SaveState::Saving);
        let kept = KeptState::of(PersistenceLevel::Root);
        let (report, ()) = tokio::join!(calls.wait_done(Duration::from_mins(1)), async {
            calls.finish(kept.clone());
        });
        assert_eq!(report.kept, Some(kept));
    }
}
