//! One entry of an archive.

use rustix::fs::{Timespec, Timestamps};

/// Entry with its extension headers applied.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Path relative to the root, without `.`, `..` and empty parts; empty for the root.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        size: u64,
    },
    Directory,
    Fifo,
    Symlink(Vec<u8>),
    /// Path of the other name, as in [`Entry::path`].
    HardLink(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(super) struct Metadata {
    /// Permissions with set-id and sticky bits.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: Timespec,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    pub(super) fn times(&self) -> Timestamps {
        Timestamps {
            last_access: self.modified,
            last_modification: self.modified,
        }
    }
}

impl Entry {
    /// Path of the directory, and the last part.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        split(&self.path)
    }
}

pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().take(200).collect()
}
