//! Snapshots of this run of the container, one at a time: the request, and the report that calls wait
//! for.

use std::time::Duration;

use crds::contract::persistence::{SnapshotReport, SnapshotRequest};
use tokio::sync::{mpsc, watch};

/// Control server's side of the snapshots.
#[derive(Debug, Clone)]
pub(super) struct SnapshotCalls {
    requests: mpsc::Sender<SnapshotRequest>,
    latest: watch::Sender<LatestSnapshot>,
}

/// The snapshot that was asked for last, by its id.
#[derive(Debug, Clone, Default)]
struct LatestSnapshot {
    id: String,
    report: SnapshotReport,
}

impl LatestSnapshot {
    fn is_taken(&self) -> bool {
        self.report.kept.is_some() || self.report.error.is_some()
    }
}

impl SnapshotCalls {
    pub(super) fn new() -> (Self, mpsc::Receiver<SnapshotRequest>) {
        let (requests, receiver) = mpsc::channel(1);
        let latest = watch::Sender::new(LatestSnapshot::default());
        (Self { requests, latest }, receiver)
    }

    /// Returns whether this is the snapshot that was asked for last.
    pub(super) fn has_begun(&self, id: &str) -> bool {
        self.latest.borrow().id == id
    }

    /// Begins a snapshot, unless an earlier call has. `false` if another one is being taken, or the
    /// command ends.
    pub(super) fn begin(&self, request: SnapshotRequest) -> bool {
        let mut is_accepted = true;
        self.latest.send_if_modified(|latest| {
            if latest.id == request.id {
                return false;
            }
            let is_free = latest.id.is_empty() || latest.is_taken();
            let id = request.id.clone();
            is_accepted = is_free && self.requests.try_send(request).is_ok();
            if is_accepted {
                *latest = LatestSnapshot {
                    id,
                    report: SnapshotReport::default(),
                };
            }
            is_accepted
        });
        is_accepted
    }

    pub(super) fn finish(&self, report: SnapshotReport) {
        self.latest.send_modify(|latest| latest.report = report);
    }

    /// Returns the report on a snapshot once it is taken, or after `wait`.
    pub(super) async fn wait_taken(&self, id: &str, wait: Duration) -> SnapshotReport {
        let mut latest = self.latest.subscribe();
        let taken = latest.wait_for(|latest| latest.id != id || latest.is_taken());
        let _ = tokio::time::timeout(wait, taken).await;
        let latest = self.latest.borrow();
        if latest.id == id {
            latest.report.clone()
        } else {
            SnapshotReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crds::contract::persistence::{KeptState, PersistenceLevel};

    use super::*;

    fn request(id: &str) -> SnapshotRequest {
        SnapshotRequest {
            id: id.into(),
            key: String::new(),
            level: PersistenceLevel::Root,
            image: String::new(),
            workspace: String::new(),
            others: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn snapshots_are_taken_one_after_the_other() {
        let (calls, mut requests) = SnapshotCalls::new();
        assert!(calls.begin(request("a")) && calls.begin(request("a")));
        assert!(!calls.begin(request("b")));
        assert_eq!(requests.recv().await.unwrap().id, "a");
        assert!(!calls.begin(request("b")));
        let wait = Duration::from_secs(1);
        assert_eq!(calls.wait_taken("a", wait).await, SnapshotReport::default());
        let taken = SnapshotReport {
            kept: Some(KeptState::of(PersistenceLevel::Root)),
            error: None,
        };
        calls.finish(taken.clone());
        assert!(calls.begin(request("a")));
        assert_eq!(calls.wait_taken("a", wait).await, taken);
        assert!(calls.begin(request("b")));
        assert_eq!(calls.wait_taken("a", wait).await, SnapshotReport::default());
        assert_eq!(requests.recv().await.unwrap().id, "b");
        drop(requests);
        calls.finish(taken);
        assert!(!calls.begin(request("c")));
    }
}
