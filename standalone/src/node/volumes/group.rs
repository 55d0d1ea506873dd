//! Group of the files in a volume. Containers may change the volume meanwhile, so that each file is
//! opened before it is looked at, and links are never followed.

use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, chownat, fstat, openat};

/// Levels of directories that get the group; those below keep theirs. All directories above a file
/// are open meanwhile.
const MAX_LEVELS: usize = 256;

/// Gives everything below `path` to a group whose members may write.
pub(super) fn hand_over(path: &Path, group: u32) -> io::Result<()> {
    let opened = open(CWD, path)?;
    file(&opened, Gid::from_raw(group), 1)
}

fn open(directory: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?)
}

fn file(opened: &OwnedFd, group: Gid, level: usize) -> io::Result<()> {
    let found = fstat(opened)?;
    chownat(opened, c"", None, Some(group), AtFlags::EMPTY_PATH)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind.is_symlink() {
        return Ok(());
    }
    let shared = if kind.is_dir() { 0o2070 } else { 0o060 };
    let mode = found.st_mode & 0o7777 | shared;
    // The call for descriptors does not take one that was opened only as a path.
    let name = format!("/proc/self/fd/{}", opened.as_raw_fd());
    fs::set_permissions(name, Permissions::from_mode(mode))?;
    if kind.is_dir() && level < MAX_LEVELS {
        directory(opened, group, level)?;
    }
    Ok(())
}

fn directory(opened: &OwnedFd, group: Gid, level: usize) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut entries = Dir::new(openat(opened, c".", flags, Mode::empty())?)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match open(opened, name) {
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            child => file(&child?, group, level + 1)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::process::Command;

    #[test]
    fn group_is_given_to_all_files_and_not_to_targets_of_links() {
        let outside = tempfile::tempdir().unwrap();
        let volume = tempfile::tempdir().unwrap();
        let path = |name: &str| volume.path().join(name);
        for directory in [&outside, &volume] {
            fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
        }
        fs::write(outside.path().join("file"), "").unwrap();
        let before = fs::metadata(outside.path().join("file")).unwrap();
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/file"), "").unwrap();
        symlink(outside.path(), path("a/link")).unwrap();
        symlink(outside.path().join("file"), path("link")).unwrap();
        let made = Command::new("mkfifo").arg(path("a/fifo")).status();
        assert!(made.unwrap().success());
        let group = rustix::process::getegid().as_raw();
        hand_over(volume.path(), group).unwrap();
        for (name, mode) in [
            ("", 0o2770),
            ("a/b", 0o2775),
            ("a/b/file", 0o664),
            ("a/fifo", 0o664),
        ] {
            let found = fs::metadata(path(name)).unwrap();
            assert_eq!(
                (found.mode() & 0o7777, found.gid()),
                (mode, group),
                "{name}"
            );
        }
        let after = fs::metadata(outside.path().join("file")).unwrap();
        assert_eq!(after.mode(), before.mode());
        assert_eq!(fs::metadata(outside.path()).unwrap().mode() & 0o7777, 0o700);
    }
}
