//! Options and results of a dump and a restore.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::archive::key::ArchiveKey;
use crate::archive::manifest::Manifest;
use crate::error::CheckpointError;

/// Bounds of one dump or restore.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// After this time the operation is given up. Undoing it may take 2 s more.
    pub time: Duration,
    /// Bytes of all images, before encryption. A restore does not check it.
    pub bytes: u64,
}

/// Called once at a point of no return; an error stops the operation with that reason.
pub type Approval<'a> = &'a mut dyn FnMut(&Manifest) -> Result<(), String>;

pub struct DumpOptions<'a> {
    pub key: &'a ArchiveKey,
    /// Bytes that a restore must give again: sandbox, image digest, version.
    pub context: &'a [u8],
    pub limits: Limits,
    /// The tree goes on after the dump instead of being killed.
    pub leave_running: bool,
    /// Finds the files that processes watch by a walk over `/`, which takes about a second.
    pub find_watched_files: bool,
    /// The archive reaches the disk before the tree is killed.
    pub sync: bool,
    /// Called when the archive is complete and the tree still stands still: an error lets it go on.
    pub approve: Approval<'a>,
}

pub struct RestoreOptions<'a> {
    pub key: &'a ArchiveKey,
    pub context: &'a [u8],
    pub limits: Limits,
    /// A descriptor for each of [`Manifest::outside_pipes`], by its name.
    pub descriptors: Vec<(String, OwnedFd)>,
    /// Called before the first instruction of the tree runs: an error kills it. Here the caller
    /// marks the archive as used.
    pub approve: Approval<'a>,
}

impl fmt::Debug for DumpOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpOptions")
            .field("limits", &self.limits)
            .field("leave_running", &self.leave_running)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RestoreOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOptions")
            .field("limits", &self.limits)
            .field("descriptors", &self.descriptors)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct DumpReport {
    /// Size of the archive file.
    pub archive_bytes: u64,
    pub manifest: Manifest,
    pub duration: Duration,
}

#[derive(Debug)]
pub struct Restored {
    /// Root of the tree, a child of this process.
    pub pid: i32,
    /// Masters of terminals whose masters were outside of the tree.
    pub terminals: Vec<OwnedFd>,
    pub manifest: Manifest,
    pub duration: Duration,
    /// Failure of the first of two attempts.
    pub failed_attempt: Option<CheckpointError>,
}
