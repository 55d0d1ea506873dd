//! Facts about a saved tree, stored beside its images.

use serde::{Deserialize, Serialize};

use crate::descriptors::OutsidePipe;

/// Facts that a caller needs before a restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub root_pid: i32,
    /// Numbers of all processes, the root first. Threads have numbers too.
    pub pids: Vec<i32>,
    /// Highest number of a process or thread. They are free again before a restore, so the caller
    /// keeps the counter of its PID namespace below [`Manifest::lowest_pid`] until then.
    pub highest_pid: i32,
    pub lowest_pid: i32,
    /// Pipes with one end outside of the tree. A restore needs a descriptor for each.
    pub outside_pipes: Vec<OutsidePipe>,
    /// Bytes of all images.
    pub image_bytes: u64,
}

/// Last chunk of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ArchiveIndex {
    pub(super) manifest: Manifest,
    pub(super) images: Vec<ImageEntry>,
    /// Bytes of each chunk, before encryption, in order.
    pub(super) chunk_bytes: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImageEntry {
    pub(super) name: String,
    pub(super) chunks: Vec<u32>,
}
