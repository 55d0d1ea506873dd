//! Flushes an archive while it grows, so that the disk works at the same time as the dump and the
//! last sync has little left to do.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Bytes that are written before the next flush.
const STEP_BYTES: usize = 16 << 20;

/// Thread that flushes one file. Without [`Flusher::finish`] it ends by itself after its present
/// flush.
pub(super) struct Flusher {
    steps: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
    unflushed: usize,
}

impl Flusher {
    pub(super) fn start(
        mut flush: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (steps, received) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("flush".to_owned())
            .spawn(move || received.iter().try_for_each(|()| flush()))?;
        Ok(Self {
            steps,
            thread,
            unflushed: 0,
        })
    }

    /// Counts bytes that were written, and begins a flush if there are enough. Never waits.
    pub(super) fn add(&mut self, bytes: usize) {
        self.unflushed += bytes;
        // Full while the disk is behind, and closed after an error, which the end returns.
        if self.unflushed >= STEP_BYTES && self.steps.try_send(()).is_ok() {
            self.unflushed = 0;
        }
    }

    /// Waits for the flushes that have begun. The file needs a last one. An error of the disk is
    /// reported once, so that it has to come from here.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.steps);
        let ended = self.thread.join();
        ended.map_err(|_| io::Error::other("the thread that flushes the archive panicked"))?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn each_step_is_flushed_and_the_error_of_a_flush_is_that_of_the_end() {
        let (sender, begun) = channel();
        let mut flusher = Flusher::start(move || {
            sender.send(()).map_err(io::Error::other)?;
            Ok(())
        })
        .unwrap();
        flusher.add(STEP_BYTES - 1);
        flusher.add(1);
        begun.recv().unwrap();
        flusher.add(STEP_BYTES - 1);
        assert!(begun.try_recv().is_err());
        drop(begun);
        flusher.add(1);
        assert!(flusher.finish().is_err());
    }
}
