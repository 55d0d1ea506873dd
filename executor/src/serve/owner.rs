//! Changes of owner in a directory tree, without following symbolic links.
//!
//! The agent may rename entries during the walk. So every entry is opened relative to the open
//! directory that contains it, and changed through that descriptor.

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};

use crate::open_path::{open_entry, open_path};

/// Deeper directories are left as they are; each level holds an open file.
const MAX_DEPTH: usize = 256;

/// Changes owner and group of a tree, symbolic links included. Fails only if its root cannot be
/// changed. `skip_hard_links` skips files with several hard links: one may be outside of the tree.
pub(super) fn change_owner(
    root: &Path,
    owner: (u32, u32),
    skip_hard_links: bool,
) -> io::Result<()> {
    change_entry(&open_path(root)?, owner, skip_hard_links, 0)
}

fn change_entry(
    entry: &OwnedFd,
    owner: (u32, u32),
    skip_hard_links: bool,
    depth: usize,
) -> io::Result<()> {
    let found = rustix::fs::fstat(entry)?;
    let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
    if !is_directory && skip_hard_links && found.st_nlink > 1 {
        return Ok(());
    }
    if (found.st_uid, found.st_gid) != owner {
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        rustix::fs::chownat(entry, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    if is_directory && depth < MAX_DEPTH {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(entry, c".", flags, Mode::empty())?;
        for name in names(&directory)? {
            let _ = open_entry(&directory, name.as_c_str())
                .and_then(|entry| change_entry(&entry, owner, skip_hard_links, depth + 1));
        }
    }
    Ok(())
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)?.flatten() {
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn change_keeps_files_outside_of_the_tree() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED change_keeps_files_outside_of_the_tree: needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let uid = |name: &str| fs::symlink_metadata(path(name)).unwrap().uid();
        fs::create_dir_all(path("tree/sub")).unwrap();
        fs::create_dir(path("outside")).unwrap();
        for file in ["tree/sub/file", "outside/file", "outside/linked"] {
            fs::write(path(file), "").unwrap();
        }
        symlink("../outside", path("tree/link")).unwrap();
        fs::hard_link(path("outside/linked"), path("tree/hard")).unwrap();
        let change = |name: &str, uid| change_owner(&path(name), (uid, 1234), true).unwrap();
        change("tree", 1234);
        for (name, expected) in [
            ("tree", 1234),
            ("tree/sub/file", 1234),
            ("tree/link", 1234),
            ("tree/hard", 0),
            ("outside", 0),
            ("outside/file", 0),
        ] {
            assert_eq!(uid(name), expected, "{name}");
        }
        // A link in place of the root, or swapped for a directory during the walk.
        change("tree/link", 1234);
        assert_eq!(uid("outside"), 0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = fs::rename(path("tree/sub"), path("tree/kept"));
                    let _ = symlink("../outside", path("tree/sub"));
                    let _ = fs::remove_file(path("tree/sub"));
                    let _ = fs::rename(path("tree/kept"), path("tree/sub"));
                }
            });
            for round in 0..500 {
                change("tree", 2000 + round);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!((uid("outside"), uid("outside/file")), (0, 0));
    }
}
