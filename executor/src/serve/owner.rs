//! Changes of owner in a directory tree, without following symbolic links.
//!
//! The agent may rename entries during the walk. So every entry is opened relative to the open
//! directory that contains it, and changed through that descriptor.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::path::Arg;

/// Deeper directories are left as they are; each level holds an open file.
const MAX_DEPTH: usize = 256;
/// Symbolic links that one path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// Changes owner and group of a tree, symbolic links included. Entries that fail do not affect the
/// others. `skip_hard_links` skips files with several hard links: one of them may be outside of the
/// tree.
///
/// # Errors
/// If the root of the tree cannot be changed.
pub(super) fn change_owner(
    root: &Path,
    owner: (u32, u32),
    skip_hard_links: bool,
) -> io::Result<()> {
    change_entry(&open_path(root, false)?, owner, skip_hard_links, 0)
}

/// Opens a path component by component. Links in it are followed only if the agent cannot have made
/// them, such as those of the image; a link as its last component is opened itself. `create` makes
/// missing directories.
pub(super) fn open_path(path: &Path, create: bool) -> io::Result<OwnedFd> {
    let mut entry = open_entry(CWD, ".")?;
    let mut names = reversed_components(path);
    let mut links = 0;
    while let Some(name) = names.pop() {
        let next = match open_entry(&entry, &name) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                rustix::fs::mkdirat(&entry, &name, Mode::from_raw_mode(0o777))?;
                open_entry(&entry, &name)?
            }
            next => next?,
        };
        let found = rustix::fs::fstat(&next)?;
        if names.is_empty() || !FileType::from_raw_mode(found.st_mode).is_symlink() {
            entry = next;
            continue;
        }
        let directory = rustix::fs::fstat(&entry)?;
        let own = [0, rustix::process::geteuid().as_raw()];
        links += 1;
        // In a directory that others can write to, a link may have been put in place of another.
        let is_trusted = own.contains(&found.st_uid)
            && own.contains(&directory.st_uid)
            && directory.st_mode & 0o022 == 0;
        if !is_trusted || links > MAX_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = rustix::fs::readlinkat(&next, c"", Vec::new())?;
        names.extend(reversed_components(Path::new(OsStr::from_bytes(
            target.as_bytes(),
        ))));
    }
    Ok(entry)
}

/// Components, the last one first. An absolute path has `/` as its first one, which leads from any
/// directory to the root.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names.map(|name| name.as_os_str().to_owned()).collect()
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

fn open_entry(directory: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
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
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
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

    #[test]
    fn path_follows_links_of_the_image_but_not_of_the_agent() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["data", "image", "agent"] {
            fs::create_dir(path(name)).unwrap();
        }
        symlink("../data", path("image/workspace")).unwrap();
        symlink(path("data"), path("agent/link")).unwrap();
        fs::set_permissions(path("agent"), fs::Permissions::from_mode(0o777)).unwrap();
        open_path(&path("image/workspace/made/deep"), true).unwrap();
        assert!(path("data/made/deep").is_dir());
        let open = |name: &str| open_path(&path(name), true).map(drop);
        open("agent/own/work").unwrap();
        open("agent/link/planted").unwrap_err();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(path("image/workspace"), Some(1234), None).unwrap();
            open("image/workspace/planted").unwrap_err();
        }
        assert!(!path("data/planted").exists());
        symlink("loop", path("image/loop")).unwrap();
        open("image/loop/x").unwrap_err();
    }
}
