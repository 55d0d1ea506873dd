//! Walk over the files of one file system in a fixed order, by descriptors.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::mounts::{self, is_at_or_below};

/// Nested directories. Deeper ones are left out, because each level has an open descriptor.
const MAX_DEPTH: usize = 512;

/// File system without what is mounted on it.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: OwnedFd,
    /// Paths that are left out with all below, without a slash in front.
    pub(super) excluded: BTreeSet<Vec<u8>>,
}

/// One file of the walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) directory: BorrowedFd<'a>,
    /// Name in the directory; `.` for the root.
    pub(super) name: &'a [u8],
    /// Path without a slash in front; empty for the root.
    pub(super) path: &'a [u8],
    pub(super) stat: &'a Stat,
}

impl Found<'_> {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl Tree {
    /// Files below `root` but those on other mounts and below the `excluded` paths.
    pub(super) fn open(root: &Path, excluded: &[&Path]) -> Result<Self, StateError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(root, flags, Mode::empty());
        let mounts = mounts::read().map_err(StateError::io("read the mounts"))?;
        let mut paths = mounts::points_below(&mounts, root);
        let excluded = excluded.iter();
        let excluded = excluded.filter_map(|path| path.strip_prefix(root).ok());
        paths.extend(excluded.map(|path| path.as_os_str().as_encoded_bytes().to_vec()));
        Ok(Self {
            root: directory.map_err(StateError::io("open a directory"))?,
            excluded: paths,
        })
    }

    /// Returns whether something is mounted below a directory.
    pub(super) fn has_excluded_below(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let first = self.excluded.range(below..).next();
        first.is_some_and(|excluded| is_at_or_below(excluded, path))
    }

    /// Returns whether a path is left out of walks.
    pub(super) fn is_excluded(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| &path[..at]);
        self.excluded.contains(path) || above.any(|path| self.excluded.contains(path))
    }
}

struct Level {
    directory: OwnedFd,
    /// Sorted, the first one last.
    names: Vec<Vec<u8>>,
    /// Length of the path of the directory.
    length: usize,
}

/// Calls `visit` for each file: a directory before its content, names in the order of their bytes.
/// Returns the number of directories whose content is left out because of their depth.
pub(super) fn walk(
    tree: &Tree,
    deadline: Deadline,
    mut visit: impl FnMut(Found<'_>) -> Result<(), StateError>,
) -> Result<u64, StateError> {
    let failed = StateError::io::<io::Error>;
    let root = fstat(&tree.root).map_err(StateError::io("read the root"))?;
    visit(Found {
        directory: tree.root.as_fd(),
        name: b".",
        path: b"",
        stat: &root,
    })?;
    let mut too_deep = 0;
    let mut path = Vec::new();
    let first = open_level(tree.root.as_fd(), b".", 0).map_err(failed("read the root"))?;
    let mut stack = Vec::from_iter(first);
    loop {
        let depth = stack.len();
        let Some(level) = stack.last_mut() else {
            return Ok(too_deep);
        };
        path.truncate(level.length);
        let Some(name) = level.names.pop() else {
            stack.pop();
            continue;
        };
        deadline.check()?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        if tree.excluded.contains(&path) {
            continue;
        }
        let directory = level.directory.as_fd();
        let stat = match statat(directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(StateError::io("read the state of a file")(error)),
        };
        let found = Found {
            directory,
            name: &name,
            path: &path,
            stat: &stat,
        };
        let is_directory = found.kind().is_dir();
        if is_directory && stat.st_dev != root.st_dev {
            continue;
        }
        visit(found)?;
        if is_directory && depth >= MAX_DEPTH {
            too_deep += 1;
        } else if is_directory {
            let below = open_level(directory, &name, path.len());
            stack.extend(below.map_err(failed("read a directory"))?);
        }
    }
}

/// Opens a directory and reads its names; `None` if it is gone.
fn open_level(parent: BorrowedFd<'_>, name: &[u8], length: usize) -> io::Result<Option<Level>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(parent, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        // Removed or replaced meanwhile.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable_by(|one, other| other.cmp(one));
    Ok(Some(Level {
        directory,
        names,
        length,
    }))
}

/// Order of the walk: what is in a directory follows it at once.
pub(super) fn compare(one: &[u8], other: &[u8]) -> Ordering {
    // Names have no NUL.
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(key).cmp(other.iter().map(key))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn walk_is_sorted_and_leaves_out_excluded_paths() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a/x", "a/y/z", "a.b", "b", "out/in"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let tree = Tree {
            root: File::open(directory.path()).unwrap().into(),
            excluded: [b"out".to_vec()].into(),
        };
        let mut paths = Vec::new();
        let visit = |found: Found<'_>| {
            paths.push(String::from_utf8_lossy(found.path).into_owned());
            Ok(())
        };
        assert_eq!(walk(&tree, Deadline::NONE, visit).unwrap(), 0);
        assert_eq!(paths, ["", "a", "a/x", "a/y", "a/y/z", "a.b", "b"]);
        assert!(paths.is_sorted_by(|one, other| {
            compare(one.as_bytes(), other.as_bytes()) == Ordering::Less
        }));
        assert!(tree.is_excluded(b"out/in/deep") && !tree.is_excluded(b"outer"));
    }
}
