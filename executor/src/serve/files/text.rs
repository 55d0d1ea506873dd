//! Reads text files with a size limit.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::error::FileError;
use super::text_document::normalize_newlines;

/// Largest file in an observation, in bytes. Larger ones are for `/download_files`.
const MAX_SIZE: u64 = 256 << 20;
/// Bytes that decide whether a file is binary.
const SAMPLE: u64 = 1024;

/// Reads a regular file. A device or a pipe could be endless or block.
pub(in crate::serve) fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let of = |error| FileError::of(error, path);
    let file = open(path).map_err(of)?;
    let found = file.metadata().map_err(of)?;
    if found.is_dir() {
        return Err(FileError::Directory(path.display().to_string()));
    }
    let mut content = Vec::new();
    let unreadable = || FileError::Unreadable(path.display().to_string());
    if !found.is_file() || found.len() > MAX_SIZE {
        return Err(unreadable());
    }
    // Files in `/proc` have size 0, and some never end.
    file.take(MAX_SIZE + 1)
        .read_to_end(&mut content)
        .map_err(of)?;
    if content.len() as u64 > MAX_SIZE {
        return Err(unreadable());
    }
    Ok(content)
}

/// Reads UTF-8 text and converts all newlines to `\n`.
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    let content = String::from_utf8(bytes(path)?)
        .map_err(|_| FileError::NotText(path.display().to_string()))?;
    if content.contains('\r') {
        return Ok(normalize_newlines(&content));
    }
    Ok(content)
}

/// Reads the first bytes of a regular file.
pub(super) fn sample(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(SAMPLE).read_to_end(&mut content)?;
    }
    Ok(content)
}

fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
