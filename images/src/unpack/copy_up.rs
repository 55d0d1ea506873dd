//! Copies of files of the layers below, for hard links to them.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Timespec, lgetxattr, llistxattr, openat, symlinkat};

use super::entry::Metadata;
use super::metadata::set_metadata;

/// Bytes of the names of all attributes of a file, and of one value, as in the kernel.
const MAX_LIST: usize = 64 << 10;

/// Owner, mode, time and attributes of a file.
pub(super) fn metadata(place: &Path) -> io::Result<Metadata> {
    let found = fs::symlink_metadata(place)?;
    Ok(Metadata {
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        modified: Timespec {
            tv_sec: found.mtime(),
            tv_nsec: found.mtime_nsec(),
        },
        xattrs: attributes(place)?,
    })
}

fn attributes(place: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; MAX_LIST];
    let length = llistxattr(place, &mut names[..])?;
    let names = names[..length].split(|byte| *byte == 0);
    let mut attributes = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        let mut value = vec![0; MAX_LIST];
        let length = lgetxattr(place, &CString::new(name)?, &mut value[..])?;
        value.truncate(length);
        attributes.push((name.to_vec(), value));
    }
    Ok(attributes)
}

/// Copies a regular file or symbolic link into a directory; its bytes.
pub(super) fn copy(place: &Path, parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<u64> {
    let found = fs::symlink_metadata(place)?;
    if found.is_symlink() {
        let target = fs::read_link(place)?;
        symlinkat(target.as_os_str().as_bytes(), parent, name)?;
        return Ok(0);
    }
    if !found.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let copy = openat(parent, name, create, Mode::RUSR | Mode::WUSR)?;
    let mut copy = File::from(copy);
    let bytes = io::copy(&mut File::open(place)?, &mut copy)?;
    set_metadata(&OwnedFd::from(copy), &metadata(place)?)?;
    Ok(bytes)
}
