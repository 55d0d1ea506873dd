//! Opens paths component by component. Links in them are followed only if the agent cannot have made
//! them, such as those of the image.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Symbolic links that one path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// Opens a path; a link as its last component is opened itself.
pub(crate) fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open(path, false)
}

/// Opens a directory and creates what is missing of its path.
pub(crate) fn create_directory(path: &Path) -> io::Result<OwnedFd> {
    let directory = open(path, true)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, c".", flags, Mode::empty())?)
}

fn open(path: &Path, create: bool) -> io::Result<OwnedFd> {
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
        let is_link = FileType::from_raw_mode(found.st_mode).is_symlink();
        if !is_link || (names.is_empty() && !create) {
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

/// Components, the last one first. An absolute path starts with `/`, which leads to the root.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names.map(|name| name.as_os_str().to_owned()).collect()
}

/// Opens an entry of a directory, or the link itself.
pub(crate) fn open_entry(directory: impl AsFd, name: impl Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

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
        create_directory(&path("image/workspace/made/deep")).unwrap();
        assert!(path("data/made/deep").is_dir());
        let open = |name: &str| create_directory(&path(name)).map(drop);
        open("agent/own/work").unwrap();
        open("agent/link/planted").unwrap_err();
        open("agent/link").unwrap_err();
        open("image/workspace").unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(path("image/workspace"), Some(1234), None).unwrap();
            open("image/workspace/planted").unwrap_err();
        }
        assert!(!path("data/planted").exists());
        symlink("loop", path("image/loop")).unwrap();
        open("image/loop/x").unwrap_err();
    }
}
