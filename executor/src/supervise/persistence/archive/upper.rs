//! Upper directory of an overlay: which of its entries hide files of the image.

use std::collections::BTreeMap;
use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::entry::join;
use super::walk::{Found, Tree};
use crate::supervise::persistence::error::StateError;

/// Returns whether an entry stands for a removed file: a device with the number 0.
pub(super) fn is_whiteout(found: &Found<'_>) -> bool {
    found.kind() == FileType::CharacterDevice && found.stat.st_rdev == 0
}

/// Returns whether a directory shows no file of the image, also in directories below, so that one of
/// the image in its place may be removed first. The overlay marks such directories, with an attribute
/// that is not readable in every container; so the names are compared.
pub(super) fn hides_directory(found: &Found<'_>, merged: &Tree) -> Result<bool, StateError> {
    if found.path.is_empty() || !found.kind().is_dir() || merged.has_excluded_below(found.path) {
        return Ok(false);
    }
    let Some(shown) = open_below(merged.root.as_fd(), found.path)? else {
        return Ok(false);
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = openat(found.directory, found.name, flags, Mode::empty());
    let own = own.map_err(StateError::io("open a directory"))?;
    let mut pending = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let shown = open_below(shown.as_fd(), &path)?;
        let (Some(shown), Some(own)) = (shown, open_below(own.as_fd(), &path)?) else {
            return Ok(false);
        };
        let own = names(&own)?;
        for (name, kind) in names(&shown)? {
            match own.get(&name) {
                None => return Ok(false),
                Some(FileType::Directory) if kind == FileType::Directory => {
                    pending.push(join(&path, &name));
                }
                Some(_) => {}
            }
        }
    }
    Ok(true)
}

/// Opens a directory; `None` if it was removed or replaced meanwhile, or its path is too long.
fn open_below(directory: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OwnedFd>, StateError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = if path.is_empty() { b"." } else { path };
    match openat2(directory, path, flags, Mode::empty(), resolve) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG) => {
            Ok(None)
        }
        Err(error) => Err(StateError::io("open a directory")(error)),
    }
}

fn names(directory: &OwnedFd) -> Result<BTreeMap<Vec<u8>, FileType>, StateError> {
    let failed = StateError::io::<io::Error>;
    let read = || {
        let entries = Dir::read_from(directory.as_fd())?;
        let names = entries.map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_bytes().to_vec(), entry.file_type()))
        });
        names.collect::<io::Result<BTreeMap<_, _>>>()
    };
    let mut names = read().map_err(failed("read a directory"))?;
    names.retain(|name, _| !matches!(&**name, b"." | b".."));
    Ok(names)
}
