//! What the kernel's process and the programs that it starts write to its standard outputs.
//!
//! A kernel would read its own outputs in a thread, whose part of a cell may come after the cell
//! has ended. Here the server reads them: what is in the pipe at the end of a cell belongs to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;

use super::output::Cell;

/// Bytes kept of what was written last: it says why a kernel ended.
const LAST_WORDS: usize = 4 << 10;
const BUFFER: usize = 16 << 10;

#[derive(Debug, Clone)]
pub(super) struct Pipe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    end: Receiver,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The beginning of a character that is not complete.
    part: Vec<u8>,
    last_words: String,
}

impl Pipe {
    pub(super) fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            end: Receiver::from_owned_fd(end)?,
            state: Mutex::default(),
        })))
    }

    /// Gives everything to the cell that is under way at the time, until the last writer is gone.
    pub(super) async fn follow(self, cell: watch::Sender<Cell>) {
        while let Ok(()) = self.0.end.readable().await {
            let mut ended = false;
            let _ = self.0.end.try_io(|| {
                ended = self.drain(&cell);
                // Nothing is left: wait for more.
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            });
            if ended {
                return;
            }
        }
    }

    /// Reads what is there; whether there will be nothing more.
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

    pub(super) fn last_words(&self) -> String {
        self.0.state.lock().last_words.trim().to_owned()
    }
}

impl State {
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.part.extend(bytes);
        let whole = match std::str::from_utf8(&self.part) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.part.len(),
        };
        let rest = self.part.split_off(whole);
        let text = String::from_utf8_lossy(&self.part).into_owned();
        self.part = rest;
        self.last_words.push_str(&text);
        let excess = self.last_words.len().saturating_sub(LAST_WORDS);
        let excess = self.last_words.ceil_char_boundary(excess);
        self.last_words.drain(..excess);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_may_come_in_parts() {
        let mut state = State::default();
        assert_eq!(state.decode(b"a\xe2\x82"), "a");
        assert_eq!(state.decode(b"\xac\xff"), "€\u{fffd}");
        assert_eq!(state.decode(b"\xf0\x9fx"), "\u{fffd}x");
        state.decode("é".repeat(LAST_WORDS).as_bytes());
        assert!(state.last_words.len() <= LAST_WORDS);
    }
}
