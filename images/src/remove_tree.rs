//! Removal of directories whose content is untrusted. The standard library opens every level at
//! once and recurses, so that a tree of some thousand levels exhausts descriptors or the stack.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

/// Levels that are open at a time. Deeper directories are moved to the top first.
const MAX_LEVELS: usize = 64;
/// Passes over the top, each of which removes [`MAX_LEVELS`] levels.
const MAX_PASSES: usize = 1 << 20;
/// Names that are tried for a directory at the top.
const MAX_NAMES: usize = 1 << 16;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a file or a directory with all its content. Links are not followed.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match unlinkat(CWD, path, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        removed => return Ok(removed?),
    }
    let mut removal = Removal {
        top: Dir::new(openat(CWD, path, DIRECTORY, Mode::empty())?)?,
        moved: 0,
        has_moved: false,
    };
    for _ in 0..MAX_PASSES {
        let top = Dir::read_from(removal.top.fd()?)?;
        removal.has_moved = false;
        removal.empty(top, 1)?;
        if !removal.has_moved {
            break;
        }
    }
    fs::remove_dir(path)
}

struct Removal {
    top: Dir,
    /// Number in the name of the next directory that is moved.
    moved: usize,
    has_moved: bool,
}

impl Removal {
    /// Removes the entries of a directory at this level.
    fn empty(&mut self, mut directory: Dir, level: usize) -> io::Result<()> {
        while let Some(entry) = directory.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                self.remove(&directory, name, level)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, directory: &Dir, name: &CStr, level: usize) -> io::Result<()> {
        match unlinkat(directory.fd()?, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            removed => return gone(removed),
        }
        match unlinkat(directory.fd()?, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            removed => return gone(removed),
        }
        if level >= MAX_LEVELS {
            return self.lift(directory, name);
        }
        let child = openat(directory.fd()?, name, DIRECTORY, Mode::empty())?;
        self.empty(Dir::new(child)?, level + 1)?;
        match unlinkat(directory.fd()?, name, AtFlags::REMOVEDIR) {
            // It has got a directory while it was read, and the next pass removes both.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                self.has_moved = true;
                Ok(())
            }
            removed => gone(removed),
        }
    }

    /// Moves a directory to the top.
    fn lift(&mut self, directory: &Dir, name: &CStr) -> io::Result<()> {
        self.has_moved = true;
        for _ in 0..MAX_NAMES {
            self.moved += 1;
            let (top, new) = (self.top.fd()?, format!(".removed-{}", self.moved));
            let moved = renameat_with(directory.fd()?, name, top, new, RenameFlags::NOREPLACE);
            match moved {
                Err(Errno::EXIST) => {}
                moved => return Ok(moved?),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Counts files that are gone already as removed.
fn gone(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    /// Makes directories below each other, deeper than a path can name.
    fn deepen(path: &Path, levels: usize) {
        let mut directory = openat(CWD, path, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = openat(&directory, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        openat(
            &directory,
            "file",
            OFlags::CREATE | OFlags::RDWR,
            Mode::RWXU,
        )
        .unwrap();
    }

    #[test]
    fn tree_of_any_depth_is_removed_with_few_descriptors() {
        // In memory, because disks take seconds for it.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a")).unwrap();
        fs::create_dir(tree.join(".removed-1")).unwrap();
        deepen(&tree, 20_000);
        deepen(&tree.join("a"), 200);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("kept/inner")).unwrap();
        fs::create_dir(path("tree")).unwrap();
        symlink(path("kept"), path("tree/link")).unwrap();
        symlink(path("kept"), path("top")).unwrap();
        remove_tree(&path("tree")).unwrap();
        remove_tree(&path("top")).unwrap();
        assert!(path("kept/inner").is_dir());
        assert!(!path("tree").exists() && !path("top").is_symlink());
        let missing = remove_tree(&path("tree")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
