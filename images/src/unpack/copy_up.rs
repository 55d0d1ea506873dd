//! Copies of files of the layers below, for hard links to them.

use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Timespec, lgetxattr, llistxattr, openat, symlinkat};
use rustix::io::Errno;

use super::metadata::Metadata;

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
    let length = match llistxattr(place, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => 0,
        length => length?,
    };
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

/// Copies a regular file or symbolic link into a directory.
pub(super) fn copy(place: &Path, directory: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let metadata = metadata(place)?;
    if fs::symlink_metadata(place)?.is_symlink() {
        let target = fs::read_link(place)?;
        symlinkat(target.as_os_str().as_bytes(), directory, name)?;
        return Ok(metadata.apply_at(directory, name, FileType::Symlink)?);
    }
    let nofollow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let mut original = OpenOptions::new();
    let mut original = original.read(true).custom_flags(nofollow).open(place)?;
    let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let copy = openat(directory, OsStr::from_bytes(name), create, Mode::RUSR)?;
    let mut copy = File::from(copy);
    io::copy(&mut original, &mut copy)?;
    Ok(metadata.apply_with_time(&copy)?)
}
