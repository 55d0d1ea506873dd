//! Directories of the store, which is a directory on the volume. All files are opened by their
//! descriptors: the command of an earlier Pod may have left links.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, fchmod, fstat, mkdirat,
    openat2, renameat, renameat_with,
};
use rustix::io::Errno;

use super::remove_tree::remove_tree;

/// Files outside of the workspace, and processes.
const ROOT: &str = "root";
/// Copies of the state for other sandboxes.
const SNAPSHOTS: &str = "snapshots";
const NO_LINKS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

#[derive(Debug)]
pub(super) struct Store {
    directory: OwnedFd,
}

impl Store {
    /// Opens the store below `path`, the mount point of the volume's directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::open_private(path, ROOT)
    }

    /// Opens the directory of snapshots below `path`.
    pub(super) fn open_snapshots(path: &Path) -> io::Result<Self> {
        Self::open_private(path, SNAPSHOTS)
    }

    /// Store of an existing directory, which may be read-only.
    pub(super) fn of(directory: OwnedFd) -> Self {
        Self { directory }
    }

    fn open_private(path: &Path, name: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let volume = rustix::fs::open(path, flags, Mode::empty())?;
        make_directory(volume.as_fd(), name)?;
        let directory = open_directory(volume.as_fd(), name)?;
        // Names and sizes of the files are not for other users.
        fchmod(&directory, Mode::RWXU)?;
        Ok(Self { directory })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Store in a directory of this one, which is created if it is missing.
    pub(super) fn folder(&self, name: &str) -> io::Result<Self> {
        let directory = self.subdirectory(name)?;
        Ok(Self { directory })
    }

    /// Opens a directory, which is created if it is missing.
    pub(super) fn subdirectory(&self, name: &str) -> io::Result<OwnedFd> {
        make_directory(self.descriptor(), name)?;
        open_directory(self.descriptor(), name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Creates an empty file in place of one that was left behind.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        create_file(self.descriptor(), name)
    }

    /// Opens a regular file; `None` if there is none.
    pub(super) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        open_file(self.descriptor(), name)
    }

    /// Renames an entry over another one, and returns whether it existed.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<bool> {
        let rename = || renameat(&self.directory, from, &self.directory, to);
        match rename() {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST) => {
                self.remove(to)?;
                rename()?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Exchanges two entries, or renames the first one if the second one is missing.
    pub(super) fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        let directory = &self.directory;
        match renameat_with(directory, one, directory, other, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => self.rename(one, other).map(drop),
            outcome => Ok(outcome?),
        }
    }

    /// Path of an entry by the directory's descriptor: the store may not be visible in the root.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{directory}/{name}"))
    }

    /// Names of all entries.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !matches!(&*name, "." | "..") {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Removes an entry with all below it.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        remove_tree(self.descriptor(), name.as_bytes())
    }

    /// Makes renames durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    /// Replaces `name` by the finished file `temporary`: after a crash there is the old one or the
    /// new one, complete.
    pub(super) fn commit(&self, file: &File, temporary: &str, name: &str) -> io::Result<()> {
        file.sync_all()?;
        self.rename(temporary, name)?;
        self.sync()
    }
}

fn make_directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn open_directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = NO_LINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(parent, name, flags, Mode::empty(), resolve)?)
}

pub(super) fn create_file(parent: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(openat2(parent, name, flags, mode, NO_LINKS)?.into())
}

fn open_file(parent: BorrowedFd<'_>, name: &str) -> io::Result<Option<File>> {
    // A pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat2(parent, name, flags, Mode::empty(), NO_LINKS) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode).is_file() {
        return Ok(Some(file.into()));
    }
    Err(io::Error::other("it is not a file"))
}

/// Reads a small file of a directory; `None` if there is none.
pub(super) fn read_file(
    parent: BorrowedFd<'_>,
    name: &str,
    limit: u64,
) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_file(parent, name)? else {
        return Ok(None);
    };
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// Removes a file that may be missing.
pub(super) fn remove_file(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
