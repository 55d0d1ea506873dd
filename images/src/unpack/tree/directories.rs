//! Open directories of a layer. Each new file changes the time of its directory, so a directory
//! gets its own time back when it is closed. No list of all directories is needed for that.

use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Timespec, fstat, futimens, mkdirat, openat};
use rustix::fs::{openat2, readlinkat};
use rustix::io::Errno;

use super::failed;
use crate::layer_view::plain;
use crate::unpack::UnpackError;
use crate::unpack::archive::MAX_DEPTH;
use crate::unpack::entry::{join, split};
use crate::unpack::metadata::{Metadata, modified, times};

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Directories that are kept open.
const MAX_OPEN: usize = 128;
/// Links followed in the path of one entry, as in the kernel.
const MAX_LINKS: usize = 40;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

#[derive(Debug)]
pub(super) struct Directory {
    /// Path without links, relative to the root.
    pub(super) path: Vec<u8>,
    pub(super) descriptor: OwnedFd,
    /// Time to set when the directory is closed.
    modified: Cell<Timespec>,
}

#[derive(Debug)]
pub(super) struct Directories {
    root: Rc<Directory>,
    open: HashMap<Vec<u8>, Rc<Directory>>,
}

/// Outcome of looking for a directory.
#[derive(Debug)]
pub(super) enum Reached {
    Open(Rc<Directory>),
    /// Path without the links that exist so far.
    Missing(Vec<u8>),
}

impl Directory {
    fn close(&self) -> Result<(), UnpackError> {
        let times = times(self.modified.get());
        futimens(&self.descriptor, &times).map_err(failed(&self.path))
    }
}

impl Directories {
    pub(super) fn open(root: &Path) -> Result<Self, UnpackError> {
        let root = openat(CWD, root, DIRECTORY, Mode::empty()).map_err(failed(b"/"))?;
        Ok(Self {
            root: Rc::new(Directory {
                path: Vec::new(),
                descriptor: root,
                modified: Cell::new(Metadata::DIRECTORY.modified),
            }),
            open: HashMap::new(),
        })
    }

    pub(super) fn root(&self) -> Rc<Directory> {
        Rc::clone(&self.root)
    }

    /// Looks for a directory. Links of this layer are followed inside it.
    pub(super) fn reach(&mut self, path: &[u8]) -> Result<Reached, UnpackError> {
        let mut resolved = None;
        for _ in 0..MAX_LINKS {
            let path = resolved.as_deref().unwrap_or(path);
            match self.open_plain(path) {
                Ok(directory) => return Ok(Reached::Open(directory)),
                Err(Errno::NOENT) => return Ok(Reached::Missing(path.to_vec())),
                Err(Errno::LOOP | Errno::NOTDIR) => resolved = Some(self.without_link(path)?),
                Err(error) => return Err(failed(path)(error)),
            }
        }
        Err(failed(path)(Errno::LOOP))
    }

    /// Opens a directory whose path has no links.
    pub(super) fn open_plain(&mut self, path: &[u8]) -> rustix::io::Result<Rc<Directory>> {
        if path.is_empty() {
            return Ok(self.root());
        }
        if let Some(known) = self.open.get(path) {
            return Ok(Rc::clone(known));
        }
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let root = &self.root.descriptor;
        let descriptor = openat2(root, path, DIRECTORY, Mode::empty(), inside)?;
        let modified = modified(&fstat(&descriptor)?);
        self.remember(path, descriptor, modified)
    }

    fn remember(
        &mut self,
        path: &[u8],
        descriptor: OwnedFd,
        modified: Timespec,
    ) -> rustix::io::Result<Rc<Directory>> {
        if self.open.len() >= MAX_OPEN {
            self.close_unused()?;
        }
        let directory = Rc::new(Directory {
            path: path.to_vec(),
            descriptor,
            modified: Cell::new(modified),
        });
        self.open.insert(path.to_vec(), Rc::clone(&directory));
        Ok(directory)
    }

    /// Closes all that no caller holds.
    fn close_unused(&mut self) -> rustix::io::Result<()> {
        let is_held = |directory: &Rc<Directory>| Rc::strong_count(directory) > 1;
        let unused = self.open.extract_if(|_, directory| !is_held(directory));
        for (_, directory) in unused {
            futimens(&directory.descriptor, &times(directory.modified.get()))?;
        }
        Ok(())
    }

    /// Makes a directory, or changes the metadata of the one that is there.
    pub(super) fn make(
        &mut self,
        parent: &Directory,
        name: &[u8],
        metadata: &Metadata,
    ) -> rustix::io::Result<Rc<Directory>> {
        let path = join(&parent.path, name);
        let made = match mkdirat(&parent.descriptor, name, Mode::RWXU) {
            Ok(()) => {
                let made = openat(&parent.descriptor, name, DIRECTORY, Mode::empty())?;
                self.remember(&path, made, metadata.modified)?
            }
            Err(Errno::EXIST) => self.open_plain(&path)?,
            Err(error) => return Err(error),
        };
        metadata.apply(&made.descriptor)?;
        made.modified.set(metadata.modified);
        Ok(made)
    }

    /// Forgets a directory that is to be removed.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let below = join(path, b"");
        self.open
            .retain(|known, _| known != path && !known.starts_with(&below));
    }

    /// Sets the times of all open directories.
    pub(super) fn finish(self) -> Result<(), UnpackError> {
        for directory in self.open.values() {
            directory.close()?;
        }
        self.root.close()
    }

    /// The path with its first link replaced by its target.
    fn without_link(&mut self, path: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        for end in ends.chain([path.len()]) {
            let (above, name) = split(&path[..end]);
            let Ok(parent) = self.open_plain(above) else {
                break;
            };
            let Ok(target) = readlinkat(&parent.descriptor, name, Vec::new()) else {
                continue;
            };
            let target =
                Path::new(OsStr::from_bytes(above)).join(OsStr::from_bytes(target.as_bytes()));
            let rest = path.get(end + 1..).unwrap_or_default();
            let whole = plain(&target.join(OsStr::from_bytes(rest)));
            return within_depth(whole.as_os_str().as_bytes());
        }
        Err(failed(path)(Errno::NOTDIR))
    }
}

fn within_depth(path: &[u8]) -> Result<Vec<u8>, UnpackError> {
    let depth = path.split(|byte| *byte == b'/').count() as u64;
    if depth > MAX_DEPTH {
        return Err(UnpackError::TooLong {
            what: "depth of a path",
            size: depth,
            limit: MAX_DEPTH,
        });
    }
    Ok(path.to_vec())
}
