//! Unpacking of one layer into a directory that becomes a lower directory of an overlay mount.
//!
//! One thread decompresses and hashes, the other writes files. Archives are untrusted: paths are
//! opened by descriptors that never leave the directory, and everything has a limit.

mod archive;
mod copy_up;
mod entry;
mod metadata;
mod stream;
mod tree;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::archive::Archive;
use self::tree::Tree;
use crate::Digest;

/// Limits of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of its files and extended attributes.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 4_000_000,
        }
    }
}

/// Unpacked layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackedLayer {
    /// Digest of the uncompressed archive.
    pub diff_id: Digest,
    /// Bytes of its files.
    pub bytes: u64,
    pub entries: u64,
}

/// A layer cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("{0}")]
    Read(io::Error),
    #[error("archive ends too early")]
    Truncated,
    #[error("archive is not valid: {0}")]
    Format(&'static str),
    #[error("{what} of {size} bytes is too long, the limit is {limit}")]
    TooLong {
        what: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("path {0:?} leaves the image")]
    Path(String),
    #[error("{0:?} is a device")]
    Device(String),
    #[error("{0:?} has type {1:?}, which is not supported")]
    Kind(String, char),
    #[error("files exceed the limit of {0} bytes")]
    Bytes(u64),
    #[error("files exceed the limit of {0}")]
    Entries(u64),
    #[error("archive of {read} bytes unpacks to more than {written} bytes")]
    Bomb { read: u64, written: u64 },
    #[error("link {0:?} to {1:?}, which the image does not have")]
    LinkTarget(String, String),
    #[error("writing {0:?}: {1}")]
    Write(String, io::Error),
}

/// Unpacks `layer`, a tar archive, plain or compressed by gzip or zstd, into the empty directory
/// `directory`. `parents` are the unpacked layers below, topmost first: a hard link to one of their
/// files copies it, and a directory that the archive leaves out gets their mode and owner.
///
/// After an error the caller removes `directory`; nothing outside of it has changed.
pub fn unpack(
    layer: impl Read + Send,
    directory: &Path,
    parents: &[PathBuf],
    limits: &Limits,
) -> Result<UnpackedLayer, UnpackError> {
    stream::with_decompressed(layer, |content| {
        let mut tree = Tree::open(directory, parents, *limits)?;
        let mut archive = Archive::new(content);
        while let Some(entry) = archive.next_entry()? {
            tree.add(&entry, &mut archive)?;
            archive.skip_content()?;
        }
        archive.finish()?;
        tree.finish()
    })
    .map(|(usage, diff_id)| UnpackedLayer {
        diff_id,
        bytes: usage.bytes,
        entries: usage.entries,
    })
}

#[cfg(test)]
mod tests;
