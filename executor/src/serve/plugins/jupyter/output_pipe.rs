//! Standard output and error of the kernel process and its children.
//!
//! A kernel reads its own outputs in a thread, which may deliver them after the end of the cell.
//! Here the server reads them: the content of the pipe at the end of a cell belongs to the cell.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use super::output::Cell;

/// Bytes of the latest output that are kept as the reason of an exit.
const MAX_TAIL_BYTES: usize = 4 << 10;
const BUFFER: usize = 16 << 10;

#[derive(Debug, Clone)]
pub(super) struct Pipe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    end: Receiver,
    state: Mutex<DecoderState>,
}

#[derive(Debug, Default)]
struct DecoderState {
    /// Bytes of an incomplete character.
    part: Vec<u8>,
    output_tail: String,
}

impl Pipe {
    pub(super) fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            end: Receiver::from_owned_fd(end)?,
            state: Mutex::default(),
        })))
    }

    /// Adds output to the current cell until the last writer has closed the pipe.
    pub(super) async fn follow(self, cell: watch::Sender<Cell>) {
        while let Ok(()) = self.0.end.readable().await {
            let mut ended = false;
            let _ = self.0.end.try_io(|| {
                ended = self.drain(&cell);
                // The pipe is empty: wait.
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            });
            if ended {
                return;
            }
        }
    }

    /// Reads the content of the pipe. Returns true if its last writer is gone.
    pub(super) fn drain(&self, cell: &watch::Sender<Cell>) -> bool {
        let mut buffer = [0; BUFFER];
        loop {
            match rustix::io::read(&self.0.end, &mut buffer) {
                Ok(0) => return true,
                Ok(count) => self.take(&buffer[..count], cell),
                Err(Errno::INTR) => {}
                Err(error) => return error != Errno::AGAIN,
            }
        }
    }

    fn take(&self, bytes: &[u8], cell: &watch::Sender<Cell>) {
        let text = self.0.state.lock().decode(bytes);
        cell.send_if_modified(|cell| {
            cell.take_raw(&text);
            false
        });
    }

    pub(super) fn output_tail(&self) -> String {
        self.0.state.lock().output_tail.trim().to_owned()
    }
}

impl DecoderState {
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.part.extend(bytes);
        let whole = match std::str::from_utf8(&self.part) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.part.len(),
        };
        let rest = self.part.split_off(whole);
        let text = String::from_utf8_lossy(&self.part).into_owned();
        self.part = rest;
        self.output_tail.push_str(&text);
        let excess = self.output_tail.len().saturating_sub(MAX_TAIL_BYTES);
        let excess = self.output_tail.ceil_char_boundary(excess);
        self.output_tail.drain(..excess);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_joins_split_characters() {
        let mut state = DecoderState::default();
        assert_eq!(state.decode(b"a\xe2\x82"), "a");
        assert_eq!(state.decode(b"\xac\xff"), "€\u{fffd}");
        assert_eq!(state.decode(b"\xf0\x9fx"), "\u{fffd}x");
        state.decode("é".repeat(MAX_TAIL_BYTES).as_bytes());
        assert!(state.output_tail.len() <= MAX_TAIL_BYTES);
    }
}
