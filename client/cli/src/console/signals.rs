//! Signals that end this tool, and changes of the size of its terminal.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals as they arrive. Without one of these, the first of them ends the process at once.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// Changes of the size of the terminal.
#[derive(Debug)]
pub(super) struct Resizes(Signal);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal that ends the tool; its number.
    pub(crate) async fn ended(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}

impl Resizes {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::window_change())?))
    }

    /// Waits until the terminal has another size.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
