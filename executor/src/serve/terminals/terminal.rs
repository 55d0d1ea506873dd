//! One terminal: its description, and what viewers can do with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::termios::Winsize;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::exit::Exit;
use super::message::TerminalSize;
use crate::serve::output_log::OutputLog;

/// Time for which an exited terminal is kept after its last viewer has seen the end.
const SEEN_TTL: Duration = Duration::from_mins(1);
/// The same if no viewer has seen it.
const UNSEEN_TTL: Duration = Duration::from_mins(10);

/// A size, and the viewer that has set it.
#[derive(Debug, Clone, Copy)]
pub(in crate::serve) struct SizeChange {
    pub(in crate::serve) size: TerminalSize,
    pub(in crate::serve) by: Option<u64>,
}

#[derive(Debug)]
pub(in crate::serve) struct Terminal {
    pub(in crate::serve) id: String,
    pub(super) command: Vec<String>,
    pub(in crate::serve) tty: bool,
    pub(super) created_at: Timestamp,
    pub(in crate::serve) output: Arc<OutputLog>,
    pub(super) size: watch::Sender<SizeChange>,
    pub(super) exit: watch::Sender<Option<Exit>>,
    /// Absent after its end.
    pub(super) input: Mutex<Option<mpsc::Sender<Bytes>>>,
    pub(super) control: Option<OwnedFd>,
    pub(super) is_seen: AtomicBool,
    pub(super) deleted: CancellationToken,
}

/// Description for clients.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct TerminalInfo {
    id: String,
    command: Vec<String>,
    tty: bool,
    columns: u16,
    rows: u16,
    viewers: usize,
    /// `running` or `exited`
    state: &'static str,
    exit_code: Option<i32>,
    signal: Option<&'static str>,
    created_at: Timestamp,
}

impl Terminal {
    pub(in crate::serve) fn info(&self) -> TerminalInfo {
        let size = self.size.borrow().size;
        let exit = self.exit();
        TerminalInfo {
            id: self.id.clone(),
            command: self.command.clone(),
            tty: self.tty,
            columns: size.width,
            rows: size.height,
            viewers: self.output.readers(),
            state: exit.map_or("running", |_| "exited"),
            exit_code: exit.and_then(Exit::code),
            signal: exit.and_then(Exit::signal),
            created_at: self.created_at,
        }
    }

    pub(in crate::serve) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    pub(super) async fn wait_exited(&self) {
        // The sender is this terminal.
        let _ = self.exit.subscribe().wait_for(Option::is_some).await;
    }

    /// Sizes from now on; the present one is the first.
    pub(in crate::serve) fn sizes(&self) -> watch::Receiver<SizeChange> {
        self.size.subscribe()
    }

    /// Changes the size for the program and all viewers. Without a terminal it has no effect.
    pub(in crate::serve) fn resize(&self, size: TerminalSize, viewer: u64) {
        let Some(control) = &self.control else {
            return;
        };
        let window = Winsize {
            ws_row: size.height,
            ws_col: size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // Fails only once the program has ended.
        let _ = rustix::termios::tcsetwinsize(control, window);
        let by = Some(viewer);
        self.size.send_replace(SizeChange { size, by });
    }

    /// Waits until the queue has room for input. What a program no longer reads is dropped.
    pub(in crate::serve) async fn write(&self, bytes: Bytes) {
        let input = self.input.lock().clone();
        if let Some(input) = input {
            let _ = input.send(bytes).await;
        }
    }

    /// Closes the input once the program has read what was sent before.
    pub(in crate::serve) fn close_input(&self) {
        drop(self.input.lock().take());
    }

    /// Remembers that a viewer has got all output and the exit.
    pub(in crate::serve) fn mark_seen(&self) {
        self.is_seen.store(true, Ordering::Relaxed);
    }

    /// Waits until an exited terminal is deleted or need not be kept for viewers any longer.
    pub(super) async fn wait_unneeded(&self) {
        let mut viewers = self.output.reads();
        loop {
            viewers.mark_unchanged();
            let is_seen = self.is_seen.load(Ordering::Relaxed);
            let ttl = if is_seen { SEEN_TTL } else { UNSEEN_TTL };
            let over = async {
                if self.output.readers() > 0 {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(ttl).await;
            };
            tokio::select! {
                () = over => return,
                () = self.deleted.cancelled() => return,
                // The sender is this terminal's.
                _ = viewers.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn exited() -> Terminal {
        let size = TerminalSize {
            width: 80,
            height: 24,
        };
        Terminal {
            id: "id".to_owned(),
            command: vec!["true".to_owned()],
            tty: true,
            created_at: Timestamp::UNIX_EPOCH,
            output: Arc::default(),
            size: watch::Sender::new(SizeChange { size, by: None }),
            exit: watch::Sender::new(Some(Exit::Code(3))),
            input: Mutex::default(),
            control: None,
            is_seen: AtomicBool::new(false),
            deleted: CancellationToken::new(),
        }
    }

    #[test]
    fn description_has_state_and_exit() {
        let terminal = exited();
        let _viewer = terminal.output.reader(None);
        let text = serde_json::to_string(&terminal.info()).unwrap();
        assert_eq!(
            text,
            r#"{"id":"id","command":["true"],"tty":true,"columns":80,"rows":24,"viewers":1,"state":"exited","exit_code":3,"signal":null,"created_at":"1970-01-01T00:00:00Z"}"#
        );
    }

    #[tokio::test(start_paused = true)]
    async fn end_that_no_viewer_has_seen_is_kept_longer() {
        for (is_seen, ttl) in [(false, UNSEEN_TTL), (true, SEEN_TTL)] {
            let terminal = exited();
            if is_seen {
                terminal.mark_seen();
            }
            let began = Instant::now();
            terminal.wait_unneeded().await;
            assert_eq!(began.elapsed(), ttl);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn end_is_kept_while_a_viewer_is_there() {
        let terminal = exited();
        terminal.mark_seen();
        let viewer = terminal.output.reader(None);
        let began = Instant::now();
        let leave = async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            drop(viewer);
        };
        tokio::join!(terminal.wait_unneeded(), leave);
        assert_eq!(began.elapsed(), Duration::from_hours(1) + SEEN_TTL);
        let deleted = exited();
        deleted.deleted.cancel();
        deleted.wait_unneeded().await;
        assert_eq!(began.elapsed(), Duration::from_hours(1) + SEEN_TTL);
    }
}
