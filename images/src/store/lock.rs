//! File locks between processes, and between tasks of one process.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::StoreError;

/// Lock on an open file; it ends with the value.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "open while locked")] File);

impl Lock {
    /// Waits for the lock, which only a sweep holds exclusively.
    pub(crate) fn shared(path: &Path) -> Result<Self, StoreError> {
        Self::open(path, FlockOperation::LockShared)
    }

    pub(crate) fn exclusive(path: &Path) -> Result<Self, StoreError> {
        Self::open(path, FlockOperation::LockExclusive)
    }

    /// Locks exclusively; `None` while others have the lock.
    pub(crate) fn try_exclusive(path: &Path) -> Result<Option<Self>, StoreError> {
        match Self::open(path, FlockOperation::NonBlockingLockExclusive) {
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::WouldBlock => {
                Ok(None)
            }
            locked => locked.map(Some),
        }
    }

    /// Opens and locks the file, anew if another process has removed it in between.
    fn open(path: &Path, operation: FlockOperation) -> Result<Self, StoreError> {
        let lock = || {
            loop {
                let file = File::create(path)?;
                flock(&file, operation)?;
                let own = file.metadata()?.ino();
                if fs::metadata(path).is_ok_and(|named| named.ino() == own) {
                    return Ok(Self(file));
                }
            }
        };
        lock().map_err(StoreError::io(path))
    }
}
