//! Upper directory of an overlay: which of its entries hide files of the image.

use std::collections::BTreeMap;
use std::io;

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use rustix::io::Errno;

use super::entry::join;
use super::walk::{Found, Tree};
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::mounts::is_at_or_below;

/// Nested directories that are compared. A deeper one counts as shown in part.
const MAX_DEPTH: usize = 256;

/// Returns whether an entry stands for a removed file: a device with the number 0.
pub(super) fn is_whiteout(found: &Found<'_>) -> bool {
    found.kind() == FileType::CharacterDevice && found.stat.st_rdev == 0
}

/// Finds directories that show nothing of the image, so that one of the image in their place may be
/// removed first. The overlay marks such directories, with an attribute that is not readable in every
/// container; so their content is compared with what the overlay shows.
pub(super) struct HiddenDirectories<'a> {
    merged: &'a Tree,
    /// The last one: what is in it needs no look.
    covered: Option<Vec<u8>>,
}

impl<'a> HiddenDirectories<'a> {
    pub(super) fn new(merged: &'a Tree) -> Self {
        Self {
            merged,
            covered: None,
        }
    }

    /// Returns whether a directory of the image is to be removed first, in the order of a walk.
    pub(super) fn hides(&mut self, found: &Found<'_>) -> Result<bool, StateError> {
        let covered = self.covered.as_ref();
        let is_covered = covered.is_some_and(|top| is_at_or_below(found.path, top));
        if is_covered || found.path.is_empty() || !found.kind().is_dir() {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let own = openat(found.directory, found.name, flags, Mode::empty());
        let hides = match own {
            Ok(own) => self.is_all_of(&own, found.path, 0),
            Err(error) => Err(error.into()),
        };
        // A program may have removed or replaced it meanwhile.
        let hides = match hides {
            Err(error) if is_gone(&error) => false,
            hides => hides.map_err(StateError::io("compare a directory"))?,
        };
        if hides {
            self.covered = Some(found.path.to_vec());
        }
        Ok(hides)
    }

    /// Returns whether an upper directory has all that the overlay shows in its place.
    fn is_all_of(&self, own: &OwnedFd, path: &[u8], depth: usize) -> io::Result<bool> {
        if depth > MAX_DEPTH || self.merged.has_excluded_below(path) {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let shown = openat2(&self.merged.root, path, flags, Mode::empty(), resolve)?;
        let (shown, present) = (entries(&shown)?, entries(own)?);
        if !shown.keys().all(|name| present.contains_key(name)) {
            return Ok(false);
        }
        for (name, is_directory) in &shown {
            if !is_directory {
                continue;
            }
            let own = openat(own, &**name, flags, Mode::empty())?;
            if !self.is_all_of(&own, &join(path, name), depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV];
    gone.iter()
        .any(|gone| error.raw_os_error() == Some(gone.raw_os_error()))
}

/// Names, and whether they are directories.
fn entries(directory: &OwnedFd) -> io::Result<BTreeMap<Vec<u8>, bool>> {
    let mut entries = BTreeMap::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let is_directory = match entry.file_type() {
            FileType::Unknown => {
                let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
                found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir())
            }
            kind => kind.is_dir(),
        };
        entries.insert(name.to_vec(), is_directory);
    }
    Ok(entries)
}
