//! Save of the command's processes, and start of a sandbox with saved ones.

use crds::contract::control::Init;
use crds::contract::persistence::SaveRequest;
use rustix::process::Pid;

use super::Supervisor;
use super::end::CommandEnd;
use super::reaper;

/// Exit status of a command that a save has ended.
const KILLED: u8 = 128 + 9;

impl Supervisor {
    /// Saves the processes of the command, or stops it if that is not possible.
    pub(super) async fn end_for_save(&mut self, child: Pid, request: SaveRequest) -> CommandEnd {
        let processes = {
            let address = self.probe_address;
            let saving = self
                .persistence
                .save_processes(child, &request.image, address);
            let mut saving = std::pin::pin!(saving);
            loop {
                tokio::select! {
                    processes = &mut saving => break processes,
                    // A signal to the container has the same aim. Children are reaped below, as
                    // the save waits for its own.
                    _ = self.reaper.next_event() => {}
                }
            }
        };
        let code = match (&processes, reaper::reap(Some(child))) {
            (Some(Ok(_)), _) => KILLED,
            (_, Some(code)) => code,
            (_, None) => self.stop(child, request.stop_seconds).await,
        };
        CommandEnd {
            code,
            save: Some(request),
            processes,
        }
    }

    /// Restores the root, and lets saved processes go on in it. Returns the root of their tree.
    pub(super) async fn restore(&mut self, init: &Init) -> Option<Pid> {
        let restored = self.persistence.restore(init.state.as_ref()).await;
        let Some(restored) = restored else {
            self.lifecycle.report_restored(None);
            return None;
        };
        let had_processes = self.persistence.has_processes();
        let (restored, root) = self.persistence.restore_processes(init, restored).await;
        self.lifecycle.report_restored(Some(restored));
        if root.is_none() {
            if had_processes {
                // Remains of a failed attempt. No program was prestarted.
                reaper::kill_all_children();
            }
            self.persistence.reserve_pids().await;
        }
        root
    }
}
