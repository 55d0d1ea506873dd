//! Save of the command's processes, and start of a sandbox with saved ones.

use std::time::Duration;

use crds::contract::control::Init;
use crds::contract::persistence::SaveRequest;
use rustix::process::Pid;

use super::Supervisor;
use super::command::CommandStartError;
use super::end::CommandEnd;
use super::persistence::SavedOrReason;
use super::reaper;

/// Exit status of a command that a save has ended.
const KILLED: u8 = 128 + 9;
/// Exit status of a command whose processes were saved at SIGTERM.
const TERMINATED: u8 = 128 + 15;
/// Time of a save at SIGTERM, with all attempts: half of the default grace period of a Pod, so that a
/// command that could not be saved still has time to end.
const EVICTION_TIME: Duration = Duration::from_secs(5);

impl Supervisor {
    /// Saves the processes of the command, or stops it if that is not possible.
    pub(super) async fn end_for_save(&mut self, child: Pid, request: SaveRequest) -> CommandEnd {
        let processes = self.save_processes(child, Some(&request.image), None).await;
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

    /// Saves the processes of a command whose Pod ends without a call, by an eviction or a drain. `None`
    /// if the command goes on: the Pod is of a lower level, the save has failed, or the command is not
    /// ready. One that never gets ready would not after a restore either.
    pub(super) async fn end_for_eviction(&mut self, child: Pid) -> Option<CommandEnd> {
        if !self.lifecycle.is_ready() {
            return None;
        }
        let processes = self
            .save_processes(child, None, Some(EVICTION_TIME))
            .await?;
        if let Err(reason) = &processes {
            tracing::warn!(reason, "processes are not kept");
        }
        let code = match (&processes, reaper::reap(Some(child))) {
            (Ok(_), _) => TERMINATED,
            (Err(_), Some(code)) => code,
            (Err(_), None) => return None,
        };
        Some(CommandEnd {
            code,
            save: None,
            processes: Some(processes),
        })
    }

    async fn save_processes(
        &mut self,
        child: Pid,
        image: Option<&str>,
        time: Option<Duration>,
    ) -> Option<SavedOrReason> {
        let address = self.probe_address;
        let saving = self.persistence.save_processes(child, image, address, time);
        let mut saving = std::pin::pin!(saving);
        loop {
            tokio::select! {
                processes = &mut saving => return processes,
                // A signal to the container has the same aim. The caller reaps children, as the
                // save waits for its own.
                _ = self.reaper.next_event() => {}
            }
        }
    }

    /// Restores the root, and lets saved processes go on in it. Returns the root of their tree.
    pub(super) async fn restore(&mut self, init: &Init) -> Result<Option<Pid>, CommandStartError> {
        let restored = self.persistence.restore(init.state.as_ref()).await;
        let had_processes = self.persistence.has_processes();
        let (restored, root) = match (self.begin(init).await?, restored) {
            (Some((begun, root)), _) => (Some(begun), root),
            (None, Some(restored)) => {
                let restoring = self.persistence.restore_processes(init, restored);
                let (restored, root) = restoring.await;
                (Some(restored), root)
            }
            (None, None) => (None, None),
        };
        let id = self.persistence.processes_id();
        self.lifecycle.report_start(restored, id);
        if root.is_none() {
            if had_processes {
                // Remains of a failed attempt. No program was prestarted.
                reaper::kill_all_children();
            }
            self.persistence.reserve_pids().await;
        }
        Ok(root)
    }
}
