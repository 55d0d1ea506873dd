//! One entry of an archive.

use super::metadata::Metadata;
use super::sparse::Range;
use crate::supervise::persistence::error::StateError;

/// Prefix of the name of an entry that hides a file of the image.
pub(super) const WHITEOUT: &[u8] = b".wh.";
const MAX_PATH_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Path without a slash in front; empty for the root. That of the hidden file for a whiteout.
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) metadata: Metadata,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        size: u64,
    },
    /// File with holes: its size, and the ranges of its content.
    Sparse {
        size: u64,
        ranges: Vec<Range>,
    },
    Directory,
    Fifo,
    Symlink(Vec<u8>),
    /// Path of the other name.
    HardLink(Vec<u8>),
    Whiteout,
}

impl Kind {
    /// Bytes of the content that follows the headers, without a map of holes.
    pub(super) fn content_bytes(&self) -> u64 {
        match self {
            Self::File { size } => *size,
            Self::Sparse { ranges, .. } => ranges.iter().map(|range| range.1).sum(),
            _ => 0,
        }
    }
}

/// Path of the directory, and the name in it.
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

/// Returns whether a name of the path would be taken for a whiteout.
pub(super) fn has_whiteout_name(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/')
        .any(|name| name.starts_with(WHITEOUT))
}

/// Checks that a path of an archive stays below the root.
pub(super) fn check_path(path: &[u8]) -> Result<(), StateError> {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    let is_path = path.is_empty() || path.split(|byte| *byte == b'/').all(is_name);
    if is_path && path.len() <= MAX_PATH_BYTES {
        return Ok(());
    }
    Err(StateError::Damaged("a path leaves the root"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_root_are_refused() {
        for path in ["", "a", "a/..b/c", ".hidden"] {
            assert!(check_path(path.as_bytes()).is_ok(), "{path}");
        }
        for path in ["/", "/a", "..", "a/../b", "a//b", "a/", ".", "./a", "a\0b"] {
            assert!(check_path(path.as_bytes()).is_err(), "{path:?}");
        }
        assert!(check_path(&vec![b'x'; MAX_PATH_BYTES + 1]).is_err());
    }
}
