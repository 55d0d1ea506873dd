//! Saves before pauses: one task per sandbox asks the supervisor to stop the command and to keep its
//! state. The result requeues the sandbox, whose Pod is deleted then. A save that another process
//! began is continued, because the supervisor reports on the same save.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crds::contract::control::{ControlMessage, Grant};
use crds::contract::persistence::{
    KeptState, PersistenceLevel, PodPersistence, RootMechanism, SaveReport, SaveRequest, SaveState,
};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::facts::{ContainerRun, SaveProgress};
use crate::probes::supervisor_client::{SupervisorAddress, SupervisorError, Supervisors};
use crate::sandbox_memory::PerSandbox;
use shared::clock::Clock;
use shared::index::Key;
use shared::keys::Keys;
use shared::kubernetes::work_queue::WorkQueue;
use shared::metrics::ControllerMetrics;

/// Maximum time of one long poll.
const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after a call that failed.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Time for calls, in addition to the limits of the save itself.
const CALL_GRACE: Duration = Duration::from_secs(10);

/// Save of one container run.
#[derive(Debug, Clone)]
pub(crate) struct SaveTarget {
    pub(crate) run: ContainerRun,
    pub(crate) address: SupervisorAddress,
    /// Time that decides on the keys: creation of the Sandbox.
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) persistence: PodPersistence,
    pub(crate) request: SaveRequest,
}

/// Running saves and their results.
pub(crate) struct StateSaver {
    supervisors: Arc<dyn Supervisors>,
    keys: Arc<Keys>,
    clock: Clock,
    queue: Arc<WorkQueue<Key>>,
    metrics: ControllerMetrics,
    saves: Mutex<HashMap<Key, SaveTask>>,
}

struct SaveTask {
    run: ContainerRun,
    progress: SaveProgress,
    /// Aborts the calls when dropped.
    _task: AbortOnDropHandle<()>,
}

impl StateSaver {
    pub(crate) fn new(
        supervisors: Arc<dyn Supervisors>,
        keys: Arc<Keys>,
        clock: Clock,
        queue: Arc<WorkQueue<Key>>,
        metrics: ControllerMetrics,
    ) -> Self {
        Self {
            metrics,
            supervisors,
            keys,
            clock,
            queue,
            saves: Mutex::default(),
        }
    }

    /// Save of this container run.
    pub(crate) fn progress(&self, key: &Key, run: &ContainerRun) -> Option<SaveProgress> {
        let saves = self.saves.lock();
        Some(saves.get(key).filter(|s| s.run == *run)?.progress.clone())
    }

    /// Starts the save of this container run, unless it has begun.
    pub(crate) fn ensure_saving(self: &Arc<Self>, key: &Key, target: SaveTarget) {
        let mut saves = self.saves.lock();
        if saves.get(key).is_some_and(|save| save.run == target.run) {
            return;
        }
        let run = target.run.clone();
        let (this, own) = (self.clone(), key.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(async move {
            let begin = Instant::now();
            let kept = this.save(&target).await;
            if let Some(kept) = &kept {
                let levels = [target.persistence.level, kept.level].map(PersistenceLevel::as_str);
                this.metrics
                    .record_save(levels[0], levels[1], begin.elapsed());
            }
            this.record(&own, &target.run, kept);
        }));
        saves.insert(
            key.clone(),
            SaveTask {
                run,
                progress: SaveProgress::Saving,
                _task: task,
            },
        );
    }

    /// Calls until the supervisor reports an end, within the limits of the Pod.
    async fn save(&self, target: &SaveTarget) -> Option<KeptState> {
        let limit = target.persistence.limits.seconds + target.request.stop_seconds;
        let until = Instant::now() + Duration::from_secs(limit) + CALL_GRACE;
        let mut last_error = None;
        let reports = async {
            loop {
                match self.call(target).await {
                    Ok(SaveReport {
                        state: SaveState::Done,
                        kept: Some(kept),
                    }) => return Some(kept.bounded()),
                    Ok(_) => {}
                    // It is dormant.
                    Err(SupervisorError::Refused(409)) => return None,
                    Err(error @ SupervisorError::Refused(404)) => {
                        let error = format!("it is of an earlier version ({error})");
                        return Some(unsaved(target, Some(error)));
                    }
                    Err(error) => {
                        tracing::debug!(pod = target.run.pod_uid, %error, "save call failed");
                        last_error = Some(error.to_string());
                        sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        };
        let kept = timeout_at(until, reports).await;
        kept.unwrap_or_else(|_| Some(unsaved(target, last_error)))
    }

    async fn call(&self, target: &SaveTarget) -> Result<SaveReport, SupervisorError> {
        let now = self.clock.now().max(Timestamp::now());
        let grant = Grant::Save(target.request.clone());
        let token = ControlMessage::new(&target.run.pod_uid, now.as_second(), grant)
            .sign(self.keys.of(target.created_at).signer())
            .map_err(|_| SupervisorError::Malformed)?;
        let supervisors = &self.supervisors;
        supervisors
            .save(&target.address, token, LONG_POLL_TIMEOUT)
            .await
    }

    fn record(&self, key: &Key, run: &ContainerRun, kept: Option<KeptState>) {
        let mut saves = self.saves.lock();
        if let Some(save) = saves.get_mut(key).filter(|save| save.run == *run) {
            save.progress = SaveProgress::Done(kept, self.clock.now());
            self.queue.add_first(key.clone());
        }
    }
}

impl PerSandbox for StateSaver {
    fn forget(&self, key: &Key) {
        self.saves.lock().remove(key);
    }
}

/// State of a sandbox whose supervisor did not report an end in time. An archive is that of an
/// earlier save, if there is one; the other mechanisms have all files on the volume anyway.
fn unsaved(target: &SaveTarget, error: Option<String>) -> KeptState {
    let PodPersistence { level, root, .. } = target.persistence;
    let error = error.unwrap_or_else(|| "it took too long".to_owned());
    let on_volume = match root {
        RootMechanism::Archive => PersistenceLevel::Workspace,
        RootMechanism::Node | RootMechanism::Overlay => PersistenceLevel::Root,
    };
    let reason = (on_volume < level).then(|| format!("the supervisor did not save: {error}"));
    let kept = KeptState {
        reason,
        ..KeptState::of(on_volume)
    };
    kept.bounded()
}

impl std::fmt::Debug for StateSaver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateSaver")
            .field("saves", &self.saves.lock().len())
            .finish_non_exhaustive()
    }
}
