//! Controllers that die at a chosen write, and counts of what they wrote.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crds::names;
use crds::sandbox::Phase;
use operator::index::Key;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::TestCluster;
use crate::fault_injection::{Failure, RequestInfo, Write};

/// Virtual time after which a controller that has not written anything has nothing to write.
const QUIET_PERIOD: Duration = Duration::from_secs(90);

impl TestCluster {
    /// From now on, the controller's `nth` write, from 1, is its last: it is executed, and the
    /// controller does not live to see the answer.
    pub fn arm_crash(&self, nth: usize) {
        let writes = AtomicUsize::new(0);
        self.faults().fail_next(1, Failure::Freeze, move |request| {
            is_controller_write(request) && writes.fetch_add(1, Ordering::Relaxed) + 1 == nth
        });
    }

    /// Waits for the crash that [`TestCluster::arm_crash`] prepared. Returns false if writes ended
    /// before; then the controller continues.
    pub async fn await_crash(&mut self) -> bool {
        let mut frozen = self.faults().frozen();
        let begun = frozen.borrow_and_update().to_owned();
        let crashed = begun > self.crashes || self.is_frozen_before_quiet(&mut frozen).await;
        self.faults().clear_failures();
        if crashed {
            self.crashes = *frozen.borrow();
            self.stop_controller();
        }
        crashed
    }

    async fn is_frozen_before_quiet(&self, frozen: &mut watch::Receiver<u64>) -> bool {
        loop {
            let before = self.faults().total_writes();
            if timeout(QUIET_PERIOD, frozen.changed()).await.is_ok() {
                return true;
            }
            if self.faults().total_writes() == before {
                return false;
            }
        }
    }

    /// Waits until no component writes any more.
    pub async fn wait_until_quiet(&self) {
        loop {
            let before = self.faults().total_writes();
            sleep(QUIET_PERIOD).await;
            if self.faults().total_writes() == before {
                return;
            }
        }
    }

    /// Watches every status from now on, and panics at the first one that says of a sandbox that it
    /// has become ready while its command never said so.
    pub fn assert_ready_is_true(&self) -> impl Future<Output = ()> + Send + use<> {
        let (index, supervisors) = (self.index.clone(), self.supervisors.clone());
        let mut changes = index.changes();
        async move {
            let mut ready: HashSet<Key> = HashSet::new();
            while let Ok(key) = changes.recv().await {
                let entry = index.get(&key).filter(|e| e.status.phase == Phase::Running);
                let Some(entry) = entry else {
                    ready.remove(&key);
                    continue;
                };
                let ip = entry.status.pod_ip.as_deref().unwrap_or_default();
                if ready.insert(key) {
                    assert!(supervisors.has_ever_answered(ip), "{:?}", entry.status);
                }
            }
        }
    }

    /// Writes of the controller so far.
    pub fn controller_writes(&self) -> Vec<Write> {
        let all = self.faults().writes();
        all.into_iter()
            .filter(|w| is_controller_write(&w.request))
            .collect()
    }

    /// Writes of the controller that were carried out and changed nothing.
    pub fn no_op_writes(&self) -> Vec<Write> {
        let idle = |w: &Write| w.status.is_success() && !w.changed;
        self.controller_writes().into_iter().filter(idle).collect()
    }
}

/// Returns whether this is a write of the controller.
pub fn is_controller_write(request: &RequestInfo) -> bool {
    request.is_write() && request.manager == names::CONTROLLER_FIELD_MANAGER
}
