//! Creates files and directories below an open directory without following links.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

/// Opens a directory below `root` and creates missing ones.
pub(super) fn enter(root: &OwnedFd, parts: &[&str]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = root.try_clone()?;
    for part in parts {
        let open = || rustix::fs::openat(&directory, *part, flags, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&directory, *part, Mode::from_raw_mode(0o777))?;
                open()
            }
            other => other,
        };
        directory = next?;
    }
    Ok(directory)
}

pub(super) fn open_root(destination: &Path) -> io::Result<OwnedFd> {
    // Links in the destination path itself are followed: the client has chosen it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, destination, flags, Mode::empty())?)
}

/// Creates a file and replaces an existing one.
pub(super) fn create(parent: &OwnedFd, name: &str) -> io::Result<File> {
    remove(parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(file.into())
}

pub(super) fn remove(parent: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
