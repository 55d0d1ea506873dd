//! Raw mode of the terminal: every key goes to the program in the sandbox.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Former mode, which comes back when this is dropped.
#[derive(Debug)]
pub(super) struct RawMode(Termios);

impl RawMode {
    pub(super) fn enter() -> io::Result<Self> {
        let former = tcgetattr(rustix::stdio::stdin())?;
        let mut raw = former.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(former))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0);
    }
}
