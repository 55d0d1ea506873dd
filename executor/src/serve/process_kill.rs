//! Kills all processes of a shell or server, including those that fork meanwhile.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::identity::Identity;
use super::orphan_reaper;
use super::process_tree::ProcessSet;

/// Rounds of listing, stopping and killing. Stopping comes first because of fork bombs.
const MAX_ROUNDS: usize = 100;
const ROUND_INTERVAL: Duration = Duration::from_millis(5);

impl ProcessSet {
    /// Kills the processes until none is left.
    pub(super) async fn kill_all(self, identity: &Identity) {
        for _ in 0..MAX_ROUNDS {
            self.signal(Signal::STOP);
            self.signal(Signal::KILL);
            if self.alive().is_empty() {
                return;
            }
            // Root without capabilities cannot kill processes of the user, but the user can.
            let kill = move || {
                self.signal(Signal::STOP);
                self.signal(Signal::KILL);
            };
            if identity.differs_from_server() {
                let _ = identity.run_unqueued(kill).await;
            }
            orphan_reaper::reap();
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    fn signal(self, signal: Signal) {
        for pid in self.alive().into_iter().filter_map(Pid::from_raw) {
            // The process may have ended by now.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}
