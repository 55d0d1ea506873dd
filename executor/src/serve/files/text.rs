//! Reads files as text, within bounds.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use super::FileError;
use super::document::universal;

/// Larger files are for `download_files`, not for an observation.
const MAX_SIZE: u64 = 256 << 20;
/// Bytes by which a file is judged.
const SAMPLE: u64 = 1024;

/// The content of a regular file. A device or a pipe could be endless or block for ever.
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
    // Files of the kernel claim to be empty and some never end.
    file.take(MAX_SIZE + 1)
        .read_to_end(&mut content)
        .map_err(of)?;
    if content.len() as u64 > MAX_SIZE {
        return Err(unreadable());
    }
    Ok(content)
}

/// The content as UTF-8 with newlines of any kind made `\n`.
pub(super) fn read(path: &Path) -> Result<String, FileError> {
    let content = String::from_utf8(bytes(path)?)
        .map_err(|_| FileError::NotText(path.display().to_string()))?;
    if content.contains('\r') {
        return Ok(universal(&content));
    }
    Ok(content)
}

/// The first bytes of a regular file.
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
