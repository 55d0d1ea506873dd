//! A local directory into which an untrusted archive is unpacked. Each step of a path is opened without
//! following links, so that nothing outside is written, also if a program changes the tree meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, mkdirat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

/// Open directory and the path below it of the last use.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    last: Option<(PathBuf, OwnedFd)>,
}

impl Tree {
    /// Opens a directory, which is created.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        let root = openat(
            CWD,
            path,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { root, last: None })
    }

    /// Creates a directory, unless it is there.
    pub(super) fn directory(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        // Without the rights of the owner it could not be filled.
        self.enter(path, mode | 0o700)
    }

    /// Creates an empty file in place of any other.
    pub(super) fn file(&mut self, path: &Path, mode: u32) -> io::Result<File> {
        let name = self.parent(path)?;
        let directory = self.current();
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || openat(directory, name, flags, Mode::from_raw_mode(mode & 0o777));
        let created = match create() {
            Err(Errno::EXIST) => {
                unlinkat(directory, name, AtFlags::empty())?;
                create()
            }
            created => created,
        };
        Ok(created?.into())
    }

    /// Creates a symbolic link. The caller has checked where it leads.
    pub(super) fn symlink(&mut self, path: &Path, target: &Path) -> io::Result<()> {
        let name = self.parent(path)?;
        let create = |directory: &OwnedFd| symlinkat(target, directory, name);
        self.replacing(name, create)
    }

    /// Creates another name of a file of the tree. False if it is none: a symbolic link that stays inside
    /// at its own depth may lead out at another one.
    pub(super) fn hard_link(&mut self, path: &Path, target: &Path) -> io::Result<bool> {
        let target_name = self.parent(target)?;
        let target_directory = self.current().try_clone()?;
        let found = statat(&target_directory, target_name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(false);
        }
        let name = self.parent(path)?;
        let create = |directory: &OwnedFd| {
            linkat(
                &target_directory,
                target_name,
                directory,
                name,
                AtFlags::empty(),
            )
        };
        self.replacing(name, create)?;
        Ok(true)
    }

    fn replacing(
        &self,
        name: &OsStr,
        create: impl Fn(&OwnedFd) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        let directory = self.current();
        match create(directory) {
            Err(Errno::EXIST) => {
                unlinkat(directory, name, AtFlags::empty())?;
                Ok(create(directory)?)
            }
            done => Ok(done?),
        }
    }

    /// Enters the parent of a path; the last part.
    fn parent<'a>(&mut self, path: &'a Path) -> io::Result<&'a OsStr> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        self.enter(path.parent().unwrap_or(Path::new("")), 0o755)?;
        Ok(name)
    }

    fn current(&self) -> &OwnedFd {
        self.last
            .as_ref()
            .map_or(&self.root, |(_, directory)| directory)
    }

    /// Opens a directory below the root, creating those that are missing.
    fn enter(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        if self.last.as_ref().is_some_and(|(last, _)| last == path) {
            return Ok(());
        }
        let mut directory = self.root.try_clone()?;
        for part in path.components() {
            let Component::Normal(part) = part else {
                return Err(Errno::INVAL.into());
            };
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = || openat(directory.as_fd(), part, flags, Mode::empty());
            let opened = match open() {
                Err(Errno::NOENT) => {
                    mkdirat(directory.as_fd(), part, Mode::from_raw_mode(mode & 0o777))?;
                    open()
                }
                opened => opened,
            };
            directory = opened?;
        }
        self.last = Some((path.to_owned(), directory));
        Ok(())
    }
}
