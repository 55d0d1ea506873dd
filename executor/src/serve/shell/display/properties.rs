//! Invariants of both screens, for property tests and fuzzing.

use super::{Display, Grid, MAX_REPLIES};

impl Display {
    pub(in crate::serve::shell) fn check(&self) {
        self.main.check();
        self.alternate.iter().for_each(Grid::check);
        assert!(self.replies.len() < MAX_REPLIES + 32);
    }
}
