//! Places of the container's mounts in the new root. An earlier command may have replaced any part
//! of their paths by links or files.

use std::io;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, renameat};
use rustix::io::Errno;

/// Opens the place for a mount, below `root` in any case. Links of the root are followed within it;
/// if they lead to nothing of the right kind, the path is made anew without links.
pub(super) fn open(root: BorrowedFd<'_>, path: &[u8], is_directory: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    if let Ok(place) = openat2(root, path, flags, Mode::empty(), resolve)
        && is_of_kind(&place, is_directory)?
    {
        return Ok(place);
    }
    let mut names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty());
    let last = names.next_back().ok_or(Errno::INVAL)?;
    let mut place = open_entry(root, b".")?;
    for name in names {
        place = make(place.as_fd(), name, true)?;
    }
    make(place.as_fd(), last, is_directory)
}

/// Opens an entry of the right kind. Another one is renamed, a missing one is created.
fn make(parent: BorrowedFd<'_>, name: &[u8], is_directory: bool) -> io::Result<OwnedFd> {
    match open_entry(parent, name) {
        Ok(entry) if is_of_kind(&entry, is_directory)? => return Ok(entry),
        Ok(_) => {
            let aside = [name, b".replaced"].concat();
            renameat(parent, name, parent, aside)?;
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    if is_directory {
        mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    }
    Ok(open_entry(parent, name)?)
}

fn open_entry(parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn is_of_kind(entry: &OwnedFd, is_directory: bool) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(fstat(entry)?.st_mode);
    // A link is neither: nothing is mounted on it.
    Ok(kind.is_dir() == is_directory && kind != FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn place_stays_below_the_root_if_parents_are_links() {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (
            directory.path().join("root"),
            directory.path().join("outside"),
        );
        fs::create_dir_all(root.join("var")).unwrap();
        fs::create_dir_all(outside.join("token")).unwrap();
        symlink(&outside, root.join("absolute")).unwrap();
        symlink("../outside", root.join("relative")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/var", root.join("run")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let descriptor = File::open(&root).unwrap();
        let inode = |path: &str, is_directory| {
            let place = open(descriptor.as_fd(), path.as_bytes(), is_directory).unwrap();
            fstat(&place).unwrap().st_ino
        };
        let at = |path: &str| fs::symlink_metadata(root.join(path)).unwrap().ino();
        for link in ["absolute", "relative", "loop"] {
            let place = inode(&format!("{link}/token"), true);
            assert_eq!(place, at(&format!("{link}/token")), "{link}");
            assert!(root.join(format!("{link}.replaced")).is_symlink(), "{link}");
        }
        // A link of the image.
        assert_eq!(inode("run", true), at("var"));
        assert_eq!(inode("file/below/deep", false), at("file/below/deep"));
        assert_eq!(inode("var", false), at("var"));
        assert!(root.join("var").is_file() && root.join("var.replaced").is_dir());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }
}
