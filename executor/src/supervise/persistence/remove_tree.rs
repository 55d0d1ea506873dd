//! Removal of trees that the command of a sandbox has made: links are not followed, and no depth of
//! directories exhausts stack or descriptors.

use std::io;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat2, renameat, unlinkat};
use rustix::io::Errno;

/// Directories that are open at a time. Deeper ones are moved up first.
const MAX_OPEN: usize = 32;

/// Removes an entry with all below it. A missing entry is no error; a mount below it is one, and
/// nothing on it is removed.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        // `unlink` of a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = open(parent, name)?;
    let mut moved = 0_u64;
    clear(&top, &mut moved)?;
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Empties a directory. `moved` counts directories that were moved up to it.
fn clear(top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    let mut stack: Vec<(OwnedFd, Vec<u8>)> = Vec::new();
    loop {
        let current = stack.last().map_or(top, |(directory, _)| directory);
        let Some(directory) = remove_files(current)? else {
            let Some((_, name)) = stack.pop() else {
                return Ok(());
            };
            let parent = stack.last().map_or(top, |(directory, _)| directory);
            unlinkat(parent, name, AtFlags::REMOVEDIR)?;
            continue;
        };
        if stack.len() < MAX_OPEN {
            let opened = open(current.as_fd(), &directory)?;
            stack.push((opened, directory));
        } else {
            let name = format!(".moved-{moved}");
            *moved += 1;
            match renameat(current, &directory, top, name) {
                // The name is taken: the next one may be free.
                Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Removes all entries but directories, and returns the name of one.
fn remove_files(directory: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => return Ok(Some(name.to_vec())),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn open(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(parent, name, flags, Mode::empty(), resolve)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn deep_tree_is_removed_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let top = directory.path().join("tree");
        fs::create_dir(&top).unwrap();
        symlink(&kept, top.join("link")).unwrap();
        let mut current = OwnedFd::from(File::open(&top).unwrap());
        for _ in 0..300 {
            for name in ["a", "b"] {
                rustix::fs::mkdirat(&current, name, Mode::RWXU).unwrap();
            }
            current = open(current.as_fd(), b"b").unwrap();
        }
        drop(current);
        let parent = File::open(directory.path()).unwrap();
        remove_tree(parent.as_fd(), b"tree").unwrap();
        remove_tree(parent.as_fd(), b"tree").unwrap();
        assert!(!top.exists());
        assert!(kept.join("file").exists());
    }
}
