//! Upper directory of an overlay: which of its entries hide files of the image.

use std::collections::BTreeSet;
use std::io;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::walk::{Found, Tree};
use crate::supervise::persistence::error::StateError;

/// Returns whether an entry stands for a removed file: a device with the number 0.
pub(super) fn is_whiteout(found: &Found<'_>) -> bool {
    found.kind() == FileType::CharacterDevice && found.stat.st_rdev == 0
}

/// Returns whether a directory shows no file of the image, so that one of the image in its place may
/// be removed first. The overlay marks such directories, with an attribute that is not readable in
/// every container; so the names are compared.
pub(super) fn hides_directory(found: &Found<'_>, merged: &Tree) -> Result<bool, StateError> {
    if found.path.is_empty() || !found.kind().is_dir() || merged.has_excluded_below(found.path) {
        return Ok(false);
    }
    let failed = StateError::io::<io::Error>;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let shown = match openat2(&merged.root, found.path, flags, Mode::empty(), resolve) {
        Ok(directory) => names(directory).map_err(failed("read a directory"))?,
        // Removed or replaced meanwhile.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(false),
        Err(error) => return Err(StateError::io("open a directory")(error)),
    };
    let own = openat(found.directory, found.name, flags, Mode::empty());
    let own = own.map_err(StateError::io("open a directory"))?;
    let own = names(own).map_err(failed("read a directory"))?;
    Ok(shown.is_subset(&own))
}

fn names(directory: OwnedFd) -> io::Result<BTreeSet<Vec<u8>>> {
    let entries = Dir::read_from(directory.as_fd())?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_bytes().to_vec()));
    names.collect()
}
