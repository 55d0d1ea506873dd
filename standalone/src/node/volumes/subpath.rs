//! Paths below a volume. A sandbox may have written a link that leads out of it, which bubblewrap
//! would follow; so the kernel rejects links in every component.

use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::VolumeError;

/// Normalizes a relative path; rejects paths that leave the directory.
pub(super) fn relative(path: &str) -> Result<PathBuf, VolumeError> {
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

/// Resolves `below` inside `volume`; creates it if the volume is writable.
pub(super) fn inside(volume: &Path, below: &str, read_only: bool) -> Result<PathBuf, VolumeError> {
    if below.is_empty() {
        return Ok(volume.to_owned());
    }
    let clean = relative(below)?;
    let mut made = PathBuf::new();
    for component in clean.components() {
        made.push(component);
        let path = volume.join(&made);
        if !read_only && fs::symlink_metadata(&path).is_err() {
            let _ = fs::create_dir(&path);
            let _ = fs::set_permissions(
                &path,
                std::os::unix::fs::PermissionsExt::from_mode(super::OPEN),
            );
        }
        check(volume, &made).map_err(|error| VolumeError::Io(below.to_owned(), error.into()))?;
    }
    Ok(volume.join(clean))
}

fn check(volume: &Path, path: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(volume, flags | OFlags::DIRECTORY, Mode::empty())?;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, flags, Mode::empty(), beneath).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        std::os::unix::fs::symlink("/etc", volume.path().join("out")).unwrap();
        assert!(inside(volume.path(), "out", false).is_err());
        assert!(inside(volume.path(), "out/ssl", false).is_err());
        let made = inside(volume.path(), "x/y", false).unwrap();
        assert!(made.is_dir());
        assert!(inside(volume.path(), "missing", true).is_err());
    }
}
