//! Paths below a volume. A sandbox may have written a link that leads out of it, and may exchange
//! directories for links at any time; so the kernel rejects links in every component, and the
//! result is an open file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fchmod, mkdirat, open, openat, openat2};
use rustix::io::Errno;

use super::VolumeError;

/// Normalizes a relative path; rejects paths that leave the directory.
pub(crate) fn relative(path: &str) -> Result<PathBuf, VolumeError> {
    let bad = || VolumeError::Path(path.to_owned());
    let mut clean = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            _ => return Err(bad()),
        }
    }
    if path.is_empty() || clean.as_os_str().is_empty() {
        Err(bad())
    } else {
        Ok(clean)
    }
}

/// Normalizes `below`, and creates it inside `volume` if the volume is writable.
pub(super) fn inside(volume: &Path, below: &str, read_only: bool) -> Result<PathBuf, VolumeError> {
    if below.is_empty() {
        return Ok(PathBuf::new());
    }
    let clean = relative(below)?;
    let provided = if read_only {
        open_inside(volume, &clean).map(drop)
    } else {
        create(volume, &clean)
    };
    provided.map_err(|error| VolumeError::Io(below.to_owned(), error))?;
    Ok(clean)
}

/// Opens a path below a directory, for a mount.
pub(crate) fn open_inside(directory: &Path, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = open(directory, flags | OFlags::DIRECTORY, Mode::empty())?;
    open_beneath(&root, below)
}

fn open_beneath(directory: impl AsFd, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(directory, below, flags, Mode::empty(), beneath)?)
}

fn create(volume: &Path, below: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = open(volume, flags, Mode::empty())?;
    for component in below.components() {
        let name = Path::new(component.as_os_str());
        let made = mkdirat(&directory, name, Mode::RWXU);
        directory = match made {
            Ok(()) => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = openat(&directory, name, flags, Mode::empty())?;
                fchmod(&made, Mode::from_raw_mode(super::OPEN))?;
                made
            }
            // A file may be mounted as well.
            Err(Errno::EXIST | Errno::ACCESS) => open_beneath(&directory, name)?,
            Err(error) => return Err(error.into()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn relative_rejects_paths_that_leave_the_volume() {
        assert_eq!(relative("a/./b").unwrap(), Path::new("a/b"));
        for bad in ["", ".", "/etc", "..", "a/../b"] {
            assert!(relative(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn inside_rejects_links() {
        let volume = tempfile::tempdir().unwrap();
        symlink("/etc", volume.path().join("out")).unwrap();
        assert!(inside(volume.path(), "out", false).is_err());
        assert!(inside(volume.path(), "out/ssl", false).is_err());
        let made = inside(volume.path(), "x/./y", false).unwrap();
        assert_eq!(made, Path::new("x/y"));
        let metadata = fs::metadata(volume.path().join(made)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, super::super::OPEN);
        assert!(inside(volume.path(), "missing", true).is_err());
        fs::write(volume.path().join("file"), "").unwrap();
        assert!(inside(volume.path(), "file", false).is_ok());
        assert!(open_inside(volume.path(), Path::new("x/y")).is_ok());
        assert!(open_inside(volume.path(), Path::new("out")).is_err());
    }
}
