//! Files of one layer, made by descriptors of their directories. Metadata of directories is set at
//! the end, because each new file changes it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, XattrFlags, chownat, fsetxattr,
    linkat, lsetxattr, makedev, mkdirat, mknodat, openat, openat2, readlinkat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;

use super::archive::Archive;
use super::entry::{Entry, Kind, Metadata, shown, split};
use super::metadata::{attributes, ignore_unsupported, set_metadata};
use super::{Limits, UnpackError, copy_up};
use crate::layer_view::{LayerView, OPAQUE, plain};

/// Directories that are kept open.
const MAX_OPEN: usize = 128;
/// Links followed in the path of one entry, as in the kernel.
const MAX_LINKS: usize = 40;

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";
/// Bookkeeping of another union file system.
const RESERVED: &[u8] = b".wh..wh.";

#[derive(Debug)]
pub(super) struct Tree<'a> {
    path: &'a Path,
    root: Rc<OwnedFd>,
    parents: &'a [PathBuf],
    limits: Limits,
    open: HashMap<Vec<u8>, Rc<OwnedFd>>,
    /// Metadata to set at the end.
    directories: BTreeMap<Vec<u8>, Metadata>,
    bytes: u64,
    entries: u64,
}

impl<'a> Tree<'a> {
    pub(super) fn open(
        path: &'a Path,
        parents: &'a [PathBuf],
        limits: Limits,
    ) -> Result<Self, UnpackError> {
        let root = openat(CWD, path, DIRECTORY, Mode::empty());
        let root = root.map_err(|error| UnpackError::Write("/".into(), error.into()))?;
        let mut tree = Self {
            path,
            root: Rc::new(root),
            parents,
            limits,
            open: HashMap::new(),
            directories: BTreeMap::new(),
            bytes: 0,
            entries: 0,
        };
        let inherited = tree.inherited(b"");
        tree.directories.insert(Vec::new(), inherited);
        Ok(tree)
    }

    /// Adds an entry, with the content that follows it in the archive.
    pub(super) fn add(&mut self, entry: &Entry, archive: &mut Archive) -> Result<(), UnpackError> {
        self.count(entry)?;
        let (directory, name) = entry.split();
        if name.is_empty() {
            if entry.kind == Kind::Directory {
                self.directories.insert(Vec::new(), entry.metadata.clone());
            }
            return Ok(());
        }
        let (directory, parent) = self.directory(directory)?;
        let path = join(&directory, name);
        if name.starts_with(WHITEOUT) {
            return self.hide(&directory, &parent, name).map_err(failed(&path));
        }
        match &entry.kind {
            Kind::File { .. } => self.file(&parent, &path, entry, archive),
            Kind::Directory => self
                .make_directory(&parent, &path, entry)
                .map_err(failed(&path)),
            Kind::HardLink(target) => self.hard_link(&parent, &path, target),
            Kind::Symlink(_) | Kind::Fifo => {
                self.special(&parent, &path, entry).map_err(failed(&path))
            }
        }
    }

    /// Sets the metadata of directories; bytes and number of entries.
    pub(super) fn finish(mut self) -> Result<(u64, u64), UnpackError> {
        self.open.clear();
        for (path, metadata) in &self.directories {
            match self.open_plain(path) {
                Ok(directory) => set_metadata(&directory, metadata).map_err(failed(path))?,
                // Replaced by another entry.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(failed(path)(error)),
            }
        }
        Ok((self.bytes, self.entries))
    }

    fn count(&mut self, entry: &Entry) -> Result<(), UnpackError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(UnpackError::Entries(self.limits.entries));
        }
        let xattrs = entry.metadata.xattrs.iter();
        let xattrs: usize = xattrs.map(|(name, value)| name.len() + value.len()).sum();
        let size = if let Kind::File { size } = entry.kind {
            size
        } else {
            0
        };
        self.charge(size.saturating_add(xattrs as u64))
    }

    fn charge(&mut self, bytes: u64) -> Result<(), UnpackError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(UnpackError::Bytes(self.limits.bytes));
        }
        Ok(())
    }

    fn open_plain(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.root, path, DIRECTORY, Mode::empty(), inside)
    }

    /// Opens a directory and creates what is missing of it. Links of this layer are followed inside
    /// it; the path without them.
    fn directory(&mut self, path: &[u8]) -> Result<(Vec<u8>, Rc<OwnedFd>), UnpackError> {
        let mut path = path.to_vec();
        for _ in 0..MAX_LINKS {
            if let Some(known) = self.open.get(&path) {
                return Ok((path, Rc::clone(known)));
            }
            match self.open_plain(&path) {
                Ok(opened) => {
                    let opened = Rc::new(opened);
                    self.remember(&path, &opened);
                    return Ok((path, opened));
                }
                Err(Errno::NOENT) => self.create_directory(&path)?,
                Err(Errno::LOOP | Errno::NOTDIR) => path = self.without_link(&path)?,
                Err(error) => return Err(failed(&path)(error)),
            }
        }
        Err(failed(&path)(Errno::LOOP))
    }

    fn remember(&mut self, path: &[u8], directory: &Rc<OwnedFd>) {
        if self.open.len() == MAX_OPEN {
            self.open.clear();
        }
        self.open.insert(path.to_vec(), Rc::clone(directory));
    }

    /// Creates the directories that the archive leaves out, with the metadata of the layers below.
    /// Stops at a link, which the caller resolves.
    fn create_directory(&mut self, path: &[u8]) -> Result<(), UnpackError> {
        let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
        for end in slashes.chain([path.len()]) {
            let path = &path[..end];
            match self.open_plain(path) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(_) => return Ok(()),
            }
            let (above, name) = split(path);
            let parent = self.open_plain(above).map_err(failed(above))?;
            mkdirat(&parent, name, Mode::RWXU).map_err(failed(path))?;
            let inherited = self.inherited(path);
            self.directories.insert(path.to_vec(), inherited);
        }
        Ok(())
    }

    /// The path with its first link replaced by its target.
    fn without_link(&self, path: &[u8]) -> Result<Vec<u8>, UnpackError> {
        let mut before: &[u8] = &[];
        let mut rest = path;
        while !rest.is_empty() {
            let end = rest.iter().position(|byte| *byte == b'/');
            let end = path.len() - rest.len() + end.unwrap_or(rest.len());
            let part = &path[..end];
            rest = path.get(end + 1..).unwrap_or_default();
            if let Ok(target) = self.read_link(part) {
                let target = Path::new(OsStr::from_bytes(before)).join(OsStr::from_bytes(&target));
                let whole = plain(&target.join(OsStr::from_bytes(rest)));
                return Ok(whole.as_os_str().as_bytes().to_vec());
            }
            before = part;
        }
        Err(failed(path)(Errno::NOTDIR))
    }

    fn read_link(&self, path: &[u8]) -> rustix::io::Result<Vec<u8>> {
        let (above, name) = split(path);
        let parent = self.open_plain(above)?;
        Ok(readlinkat(parent, name, Vec::new())?.into_bytes())
    }

    /// Metadata of the directory in the topmost layer below that has it.
    fn inherited(&self, path: &[u8]) -> Metadata {
        let path = Path::new(OsStr::from_bytes(path));
        let found = LayerView(self.parents).find(path);
        let found = found.and_then(|place| copy_up::metadata(&place));
        found.unwrap_or_else(|_| Metadata {
            mode: 0o755,
            uid: 0,
            gid: 0,
            modified: rustix::fs::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            xattrs: Vec::new(),
        })
    }

    fn make_directory(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        entry: &Entry,
    ) -> rustix::io::Result<()> {
        let (_, name) = split(path);
        let before = kind_of(parent, name)?;
        if before != Some(FileType::Directory) {
            if before.is_some() {
                self.remove(parent, path)?;
            }
            mkdirat(parent, name, Mode::RWXU)?;
        }
        if before == Some(FileType::CharacterDevice) {
            // A whiteout hides the directory of the layers below.
            set_opaque(&openat(parent, name, DIRECTORY, Mode::empty())?)?;
        }
        self.directories
            .insert(path.to_vec(), entry.metadata.clone());
        Ok(())
    }

    fn file(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        entry: &Entry,
        archive: &mut Archive,
    ) -> Result<(), UnpackError> {
        let (_, name) = split(path);
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let create = || openat(parent, name, create, Mode::RUSR | Mode::WUSR);
        let file = match create() {
            Err(Errno::EXIST) => {
                self.remove(parent, path).map_err(failed(path))?;
                create()
            }
            created => created,
        };
        let file = file.map_err(failed(path))?;
        loop {
            let mut bytes = archive.content()?;
            if bytes.is_empty() {
                break;
            }
            while !bytes.is_empty() {
                let written = rustix::io::write(&file, bytes).map_err(failed(path))?;
                bytes = &bytes[written..];
            }
        }
        set_metadata(&file, &entry.metadata).map_err(failed(path))
    }

    fn special(&mut self, parent: &OwnedFd, path: &[u8], entry: &Entry) -> rustix::io::Result<()> {
        let (_, name) = split(path);
        if kind_of(parent, name)?.is_some() {
            self.remove(parent, path)?;
        }
        let metadata = &entry.metadata;
        match &entry.kind {
            Kind::Symlink(target) => symlinkat(target.as_slice(), parent, name)?,
            _ => mknodat(parent, name, FileType::Fifo, Mode::RUSR, 0)?,
        }
        let (uid, gid) = (Uid::from_raw(metadata.uid), Gid::from_raw(metadata.gid));
        chownat(
            parent,
            name,
            Some(uid),
            Some(gid),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        if entry.kind == Kind::Fifo {
            let mode = Mode::from_raw_mode(metadata.mode);
            rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
        }
        for (key, value) in attributes(metadata) {
            let place = self.path.join(OsStr::from_bytes(path));
            ignore_unsupported(lsetxattr(place, key, value, XattrFlags::empty()))?;
        }
        utimensat(parent, name, &metadata.times(), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Links to a file of this layer; one of a layer below is copied first.
    fn hard_link(
        &mut self,
        parent: &OwnedFd,
        path: &[u8],
        target: &[u8],
    ) -> Result<(), UnpackError> {
        let missing = || UnpackError::LinkTarget(shown(path), shown(target));
        let (above, target_name) = split(target);
        if target_name.is_empty() {
            return Err(missing());
        }
        let (above, from) = self.directory(above)?;
        let target = join(&above, target_name);
        if target == path {
            return Ok(());
        }
        match kind_of(&from, target_name).map_err(failed(&target))? {
            None => self.copy_up(&from, &target).map_err(|_| missing())?,
            Some(FileType::CharacterDevice | FileType::Directory) => return Err(missing()),
            Some(_) => {}
        }
        let (_, name) = split(path);
        let link = || linkat(&from, target_name, parent, name, AtFlags::empty());
        let linked = match link() {
            Err(Errno::EXIST) => {
                self.remove(parent, path).map_err(failed(path))?;
                link()
            }
            linked => linked,
        };
        linked.map_err(failed(path))
    }

    fn copy_up(&mut self, parent: &OwnedFd, path: &[u8]) -> io::Result<()> {
        let place = LayerView(self.parents).find_link(Path::new(OsStr::from_bytes(path)))?;
        let (_, name) = split(path);
        let bytes = copy_up::copy(&place, parent.as_fd(), OsStr::from_bytes(name))?;
        self.charge(bytes).map_err(io::Error::other)
    }

    /// Applies a whiteout or opaque marker.
    fn hide(&mut self, path: &[u8], parent: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        if name == OPAQUE_MARKER {
            return set_opaque(parent);
        }
        if name.starts_with(RESERVED) {
            return Ok(());
        }
        let hidden = &name[WHITEOUT.len()..];
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        match kind_of(parent, hidden)? {
            // The layer has its own; only what is below is hidden.
            Some(FileType::Directory) => {
                set_opaque(&openat(parent, hidden, DIRECTORY, Mode::empty())?)
            }
            Some(_) => Ok(()),
            None => {
                self.open.remove(&join(path, hidden));
                mknodat(
                    parent,
                    hidden,
                    FileType::CharacterDevice,
                    Mode::empty(),
                    makedev(0, 0),
                )
            }
        }
    }

    /// Removes what an earlier entry of this layer has made.
    fn remove(&mut self, parent: &OwnedFd, path: &[u8]) -> rustix::io::Result<()> {
        let (_, name) = split(path);
        match unlinkat(parent, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            done => return done,
        }
        self.open.clear();
        let below = join(path, b"");
        self.directories
            .retain(|known, _| known != path && !known.starts_with(&below));
        // The path has no links: its directory was opened without.
        let place = self.path.join(OsStr::from_bytes(path));
        std::fs::remove_dir_all(place)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, name].join(&b'/')
}

fn failed(path: &[u8]) -> impl FnOnce(Errno) -> UnpackError {
    let path = shown(path);
    move |error| UnpackError::Write(path, error.into())
}

fn kind_of(directory: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<FileType>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn set_opaque(directory: &OwnedFd) -> rustix::io::Result<()> {
    fsetxattr(directory, OPAQUE, b"y", XattrFlags::empty())
}
