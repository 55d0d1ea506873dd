//! One entry of an archive.

use super::metadata::Metadata;

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

impl Entry {
    /// Path of the directory, and the last part.
    pub(super) fn split(&self) -> (&[u8], &[u8]) {
        split(&self.path)
    }

    /// Bytes of content and extended attributes.
    pub(super) fn bytes(&self) -> u64 {
        let xattrs = self.metadata.xattrs.iter();
        let xattrs: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
        let content = if let Kind::File { size } = self.kind {
            size
        } else {
            0
        };
        content.saturating_add(xattrs as u64)
    }
}

pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, name].join(&b'/')
}

/// The path in an error text.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().take(200).collect()
}
