//! End of the command: its state is kept, by a save call or before the container ends.

use std::time::Duration;

use crds::contract::control::SupervisorState;
use crds::contract::persistence::{KeptState, PersistenceLevel, SaveRequest};
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep_until};

use super::persistence::SavedOrReason;
use super::reaper::{self, SignalEvent};
use super::{Supervisor, handle};

/// Time after a save in which the controller reads the report and deletes the Pod. Afterwards the
/// kubelet restarts the container, and the command starts with what was kept.
const REPORT_WINDOW: Duration = Duration::from_mins(1);

const SAVING: &str = "the command has stopped, and its state is being saved";
const SAVED: &str = "the command has stopped, and its state is saved";

pub(super) struct CommandEnd {
    /// Exit status.
    pub(super) code: u8,
    /// Call that has stopped the command.
    pub(super) save: Option<SaveRequest>,
    /// Processes that this call has saved at level `Memory`.
    pub(super) processes: Option<SavedOrReason>,
}

impl Supervisor {
    /// Stops the command: SIGTERM, and SIGKILL after `seconds`. Returns its exit status.
    pub(super) async fn stop(&mut self, child: Pid, seconds: u64) -> u8 {
        let _ = rustix::process::kill_process(child, Signal::TERM);
        let now = Instant::now();
        // A time that cannot be counted to counts as none.
        let end = now.checked_add(Duration::from_secs(seconds));
        let end = end.unwrap_or(now);
        loop {
            tokio::select! {
                event = self.reaper.next_event() => match event {
                    // The command has it already, and the save goes on.
                    SignalEvent::Forward(Signal::TERM) => {}
                    event => if let Some(code) = handle(event, child) {
                        return code;
                    },
                },
                () = sleep_until(end) => {
                    tracing::warn!(seconds, "the command does not stop and is killed");
                    let _ = rustix::process::kill_process(child, Signal::KILL);
                    return 128 + 9;
                }
            }
        }
    }

    /// Keeps the state of a command that has ended. Returns the exit status of the container.
    pub(super) async fn end(mut self, end: CommandEnd) -> u8 {
        let CommandEnd {
            code,
            save,
            processes,
        } = end;
        let detail = match &save {
            Some(_) => SAVING.to_owned(),
            None => format!("exit status {code}"),
        };
        self.lifecycle.set(SupervisorState::Exited, Some(detail));
        // The log is that of the command: lines of the supervisor are for failures.
        if code == 0 || save.is_some() {
            tracing::debug!("command ended");
        } else {
            tracing::warn!(code, "command ended");
        }
        if save.is_some() {
            reaper::kill_all();
        } else {
            reaper::kill_all_children();
        }
        self.keep(code, save, processes).await
    }

    /// As [`Self::end`] for a command that could not start. Its root is as it was restored, so that
    /// only a call saves it.
    pub(super) async fn end_after_failed_start(mut self, code: u8) -> u8 {
        match self.save_requests.try_recv() {
            Ok(request) => self.keep(code, Some(request), None).await,
            Err(_) => code,
        }
    }

    async fn keep(
        &mut self,
        code: u8,
        mut save: Option<SaveRequest>,
        processes: Option<SavedOrReason>,
    ) -> u8 {
        let image = save.as_ref().map(|request| request.image.as_str());
        let kept = self.persistence.keep(image, processes).await;
        if let Some(reason) = &kept.reason {
            tracing::warn!(reason, level = ?kept.level, "not all of the state is kept");
        }
        // A call that came while the state was being kept.
        save = save.or_else(|| self.save_requests.try_recv().ok());
        self.save_requests.close();
        if save.is_none() {
            return code;
        }
        self.report_saved(kept);
        self.wait_for_end().await;
        0
    }

    fn report_saved(&self, kept: KeptState) {
        let is_saved = kept.level > PersistenceLevel::Workspace || kept.reason.is_none();
        let detail = match &kept.reason {
            Some(reason) if !is_saved => format!("the command has stopped: {reason}"),
            _ => SAVED.to_owned(),
        };
        self.lifecycle.set(SupervisorState::Exited, Some(detail));
        self.saves.finish(kept);
    }

    /// Waits for SIGTERM or the end of [`REPORT_WINDOW`].
    async fn wait_for_end(&mut self) {
        let end = Instant::now() + REPORT_WINDOW;
        loop {
            tokio::select! {
                event = self.reaper.next_event() => match event {
                    SignalEvent::Child => {
                        reaper::reap(None);
                    }
                    SignalEvent::Forward(Signal::TERM) => return,
                    SignalEvent::Forward(_) => {}
                },
                () = sleep_until(end) => return,
            }
        }
    }
}
