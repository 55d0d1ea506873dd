//! Files of one layer, made by descriptors of their directories.

mod directories;
mod links;
mod usage;
mod whiteouts;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mknodat, openat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

use self::directories::{Directories, Directory, Reached};
pub(super) use self::usage::Usage;
use self::whiteouts::{WHITEOUT, set_opaque};
use super::archive::Archive;
use super::entry::{Entry, Kind, join, shown, split};
use super::metadata::{Metadata, descriptor_path};
use super::{Limits, UnpackError, copy_up};
use crate::layer_view::LayerView;

const NEW_FILE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::WRONLY)
    .union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(super) struct Tree<'a> {
    directories: Directories,
    /// This layer and those below, topmost first.
    layers: Vec<PathBuf>,
    parents: &'a [PathBuf],
    usage: Usage,
}

impl<'a> Tree<'a> {
    pub(super) fn open(
        path: &Path,
        parents: &'a [PathBuf],
        limits: Limits,
    ) -> Result<Self, UnpackError> {
        let directories = Directories::open(path)?;
        let root = &directories.root().descriptor;
        Metadata::DIRECTORY.apply(root).map_err(failed(b"/"))?;
        let path = path.to_owned();
        Ok(Self {
            directories,
            layers: std::iter::once(path).chain(parents.to_vec()).collect(),
            parents,
            usage: Usage::new(limits),
        })
    }

    /// Adds an entry, with the content that follows it in the archive. The root has the metadata
    /// of a new directory in every layer, as in containerd; that of its entry does not count.
    pub(super) fn add(&mut self, entry: &Entry, archive: &mut Archive) -> Result<(), UnpackError> {
        self.usage.add(entry.bytes())?;
        let (above, name) = entry.split();
        if name.is_empty() {
            return Ok(());
        }
        let parent = &*self.directory(above)?;
        let metadata = &entry.metadata;
        let at = |error| failed(&join(&parent.path, name))(error);
        if name.starts_with(WHITEOUT) {
            return self.hide(parent, name, metadata).map_err(at);
        }
        match &entry.kind {
            Kind::File { .. } => self.file(parent, name, metadata, archive),
            Kind::Directory => self.make_directory(parent, name, metadata).map_err(at),
            Kind::HardLink(target) => self.hard_link(parent, name, target, metadata),
            Kind::Symlink(_) | Kind::Fifo => self.special(parent, name, entry).map_err(at),
        }
    }

    /// Sets the times that are left.
    pub(super) fn finish(self) -> Result<Usage, UnpackError> {
        self.directories.finish()?;
        Ok(self.usage)
    }

    /// Opens a directory and creates what is missing of it.
    fn directory(&mut self, path: &[u8]) -> Result<Rc<Directory>, UnpackError> {
        let path = match self.directories.reach(path)? {
            Reached::Open(directory) => return Ok(directory),
            Reached::Missing(path) => path,
        };
        let (mut parent, mut missing) = self.lowest_existing(&path)?;
        let mut is_below = true;
        while let Some(end) = missing.pop() {
            let path = &path[..end];
            let inherited = if is_below {
                self.inherited(path)?
            } else {
                None
            };
            is_below = inherited.is_some();
            self.usage.add(0)?;
            let metadata = inherited.unwrap_or(Metadata::DIRECTORY);
            let made = self.directories.make(&parent, split(path).1, &metadata);
            parent = made.map_err(failed(path))?;
        }
        Ok(parent)
    }

    /// The lowest directory that exists on the way to `path`, and the ends of the paths of those
    /// that do not, the next one last.
    fn lowest_existing(&mut self, path: &[u8]) -> Result<(Rc<Directory>, Vec<usize>), UnpackError> {
        let (mut end, mut missing) = (path.len(), Vec::new());
        loop {
            match self.directories.open_plain(&path[..end]) {
                Ok(directory) => return Ok((directory, missing)),
                Err(Errno::NOENT) => missing.push(end),
                Err(error) => return Err(failed(&path[..end])(error)),
            }
            end = split(&path[..end]).0.len();
        }
    }

    /// Metadata of the directory in the topmost layer below that has it.
    fn inherited(&self, path: &[u8]) -> Result<Option<Metadata>, UnpackError> {
        let found = LayerView(self.parents).find(Path::new(OsStr::from_bytes(path)));
        match found {
            Ok(place) if place.is_dir() => {
                let metadata = copy_up::metadata(&place);
                metadata.map(Some).map_err(failed_io(path))
            }
            _ => Ok(None),
        }
    }

    /// Makes a directory. In the place of a whiteout, it hides that of the layers below.
    fn make_directory(
        &mut self,
        parent: &Directory,
        name: &[u8],
        metadata: &Metadata,
    ) -> rustix::io::Result<()> {
        let mut is_opaque = false;
        let made = match self.directories.make(parent, name, metadata) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let before = kind_of(&parent.descriptor, name)?;
                is_opaque = before == Some(FileType::CharacterDevice);
                self.remove(parent, name)?;
                self.directories.make(parent, name, metadata)?
            }
            done => done?,
        };
        if is_opaque {
            set_opaque(&made)?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        parent: &Directory,
        name: &[u8],
        metadata: &Metadata,
        archive: &mut Archive,
    ) -> Result<(), UnpackError> {
        let at = |error| failed(&join(&parent.path, name))(error);
        let create = || openat(&parent.descriptor, name, NEW_FILE, Mode::RUSR);
        let file = match create() {
            Err(Errno::EXIST) => {
                self.remove(parent, name).map_err(at)?;
                create()
            }
            created => created,
        };
        let file = file.map_err(at)?;
        loop {
            let mut bytes = archive.content()?;
            if bytes.is_empty() {
                break;
            }
            while !bytes.is_empty() {
                let written = rustix::io::write(&file, bytes).map_err(at)?;
                bytes = &bytes[written..];
            }
        }
        metadata.apply_with_time(&file).map_err(at)
    }

    fn special(
        &mut self,
        parent: &Directory,
        name: &[u8],
        entry: &Entry,
    ) -> rustix::io::Result<()> {
        let directory = &parent.descriptor;
        let kind = match entry.kind {
            Kind::Symlink(_) => FileType::Symlink,
            _ => FileType::Fifo,
        };
        let make = || match &entry.kind {
            Kind::Symlink(target) => symlinkat(target.as_slice(), directory, name),
            _ => mknodat(directory, name, FileType::Fifo, Mode::RUSR, 0),
        };
        match make() {
            Err(Errno::EXIST) => {
                self.remove(parent, name)?;
                make()?;
            }
            done => done?,
        }
        entry.metadata.apply_at(directory, name, kind)
    }

    /// Removes what an earlier entry of this layer has made.
    fn remove(&mut self, parent: &Directory, name: &[u8]) -> rustix::io::Result<()> {
        match unlinkat(&parent.descriptor, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            done => return done,
        }
        self.directories.forget(&join(&parent.path, name));
        let place = descriptor_path(&parent.descriptor, name);
        crate::remove_tree(Path::new(OsStr::from_bytes(&place)))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

fn failed(path: &[u8]) -> impl FnOnce(Errno) -> UnpackError + use<> {
    let path = path.to_vec();
    move |error| UnpackError::Write(shown(&path), error.into())
}

fn failed_io(path: &[u8]) -> impl FnOnce(io::Error) -> UnpackError + use<> {
    let path = path.to_vec();
    move |error| UnpackError::Write(shown(&path), error)
}

fn kind_of(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<FileType>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
