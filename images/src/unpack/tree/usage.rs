//! Disk usage of a layer, against its limits.

use crate::unpack::{Limits, UnpackError};

#[derive(Debug)]
pub(in crate::unpack) struct Usage {
    limits: Limits,
    pub(in crate::unpack) bytes: u64,
    /// Entries of the archive, and what they make besides: directories above them, and copies.
    pub(in crate::unpack) entries: u64,
}

impl Usage {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: 0,
            entries: 0,
        }
    }

    /// Counts a file before it is made.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > self.limits.entries {
            return Err(UnpackError::Entries(self.limits.entries));
        }
        if self.bytes > self.limits.bytes {
            return Err(UnpackError::Bytes(self.limits.bytes));
        }
        Ok(())
    }
}
