//! Snapshots of the command, and start of a sandbox with one.

use crds::contract::control::Init;
use crds::contract::persistence::{KeptState, PersistenceLevel, SaveRequest, SnapshotRequest};
use rustix::process::{Pid, Signal};

use super::command::CommandStartError;
use super::persistence::interrupt_snapshot;
use super::reaper::SignalEvent;
use super::{Supervisor, executor_calls};

/// Calls and signals that came while a snapshot was being taken.
#[derive(Debug, Default)]
pub(super) struct Interruption {
    pub(super) save: Option<SaveRequest>,
    pub(super) signals: Vec<Signal>,
}

impl Supervisor {
    /// Copies the state of the command, which goes on. A save or SIGTERM ends the copy.
    pub(super) async fn take_snapshot(
        &mut self,
        child: Pid,
        request: SnapshotRequest,
    ) -> Interruption {
        let mut came = Interruption::default();
        let taking = self
            .persistence
            .take_snapshot(child, request, self.probe_address);
        let mut taking = std::pin::pin!(taking);
        let report = loop {
            tokio::select! {
                // First: it clears an interruption of an earlier copy.
                biased;
                report = &mut taking => break report,
                Some(save) = self.save_requests.recv(), if came.save.is_none() => {
                    interrupt_snapshot();
                    came.save = Some(save);
                }
                // The caller reaps children, as the copy waits for its own.
                event = self.reaper.next_event() => {
                    let SignalEvent::Forward(signal) = event else {
                        continue;
                    };
                    if signal == Signal::TERM {
                        interrupt_snapshot();
                    }
                    if !came.signals.contains(&signal) {
                        came.signals.push(signal);
                    }
                }
            }
        };
        if let Some(error) = &report.error {
            tracing::warn!(error, "no snapshot was taken");
        }
        self.snapshots.finish(report);
        came
    }

    /// Takes over the snapshot that the sandbox begins with. Returns what it has of it, and the
    /// root of its processes if they go on. `None` if there is no snapshot.
    pub(super) async fn begin(
        &mut self,
        init: &Init,
    ) -> Result<Option<(KeptState, Option<Pid>)>, CommandStartError> {
        let begun = self.persistence.begin(init).await;
        let begun = begun.map_err(CommandStartError::Snapshot)?;
        let Some(mut begun) = begun else {
            return Ok(None);
        };
        let mut root = None;
        if let Some((pid, key)) = begun.processes.take() {
            let renewed = match &key {
                Some(key) => executor_calls::renew(self.probe_address, init, key).await,
                None => Ok(()),
            };
            match renewed {
                Ok(()) => root = Some(pid),
                Err(error) => {
                    let reason = format!("processes did not go on: no new session key: {error}");
                    begun.restored.level = PersistenceLevel::Root;
                    begun.restored.reason = Some(reason);
                }
            }
        }
        if let Some(reason) = &begun.restored.reason {
            tracing::warn!(reason, "not all of the snapshot was restored");
        }
        Ok(Some((begun.restored, root)))
    }
}
