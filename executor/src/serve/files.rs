//! The actions `read` and `write` (`docs/specs/executor.md`, sections 6.1 and 6.3), with the rights
//! of the sandbox user. The Python server reads and writes as root.

mod binary;
mod charset;
mod directories;
mod error;
mod read_write;
mod replace;
mod text_document;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

pub(super) use self::binary::is_binary;
pub(super) use self::directories::{list, make_directories};
pub(super) use self::error::{FileError, describe, is_not_found};
pub(super) use self::read_write::{bytes, media_type, read, write};
pub(super) use self::replace::{Replacement, SymlinkPolicy, replace_file, unnamed};
pub(super) use self::text_document::TextDocument;

/// Joins a relative path to the directory of the shell. `..` is kept because of links.
pub(super) fn resolve(path: &str, working_dir: &Path) -> PathBuf {
    let joined = working_dir.join(path);
    let kept = joined
        .components()
        .filter(|part| *part != Component::CurDir);
    kept.collect()
}

/// Opens a file for reading, without waiting for the other end of a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}
