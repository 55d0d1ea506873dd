//! Check and unpacking of an archive below the root. Paths lead through no link and onto no other
//! mount.

use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};

use crds::contract::persistence::SaveLimits;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, ftruncate, linkat, mkdirat, mknodat, openat,
    openat2, statat, symlinkat,
};
use rustix::io::Errno;

use super::entry::{Entry, Kind, split};
use super::metadata::Metadata;
use super::tar_reader::TarReader;
use super::walk::Tree;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::mounts::is_at_or_below;
use crate::supervise::persistence::remove_tree::remove_tree;

const BUFFER_BYTES: usize = 128 << 10;
/// Directories whose time is set later; one descriptor each.
const MAX_DEPTH: usize = 1024;

/// Reads a whole archive without an effect: it is authentic, complete and within the limits.
pub(super) fn check(from: impl Read, limits: SaveLimits) -> Result<(), StateError> {
    let mut archive = TarReader::new(from);
    let (mut files, mut bytes) = (0_u64, 0_u64);
    while let Some(entry) = archive.next_entry()? {
        files += 1;
        bytes = bytes.saturating_add(entry.kind.content_bytes());
        if files > limits.files {
            return Err(StateError::Files(limits.files));
        }
        if bytes > limits.bytes {
            return Err(StateError::Bytes(limits.bytes));
        }
        let depth = entry.path.split(|byte| *byte == b'/').count();
        if depth > MAX_DEPTH {
            return Err(StateError::Damaged("a path is too deep"));
        }
    }
    Ok(())
}

/// Unpacks a checked archive. Returns the number of entries that are left out because the Pod has
/// a mount in their place.
pub(super) fn unpack(from: impl Read, tree: &Tree) -> Result<u64, StateError> {
    let mut archive = TarReader::new(from);
    let mut unpacker = Unpacker {
        tree,
        open: Vec::new(),
        buffer: vec![0; BUFFER_BYTES],
    };
    let mut left_out = 0;
    while let Some(entry) = archive.next_entry()? {
        if tree.is_excluded(&entry.path) || unpacker.would_remove_mount(&entry) {
            left_out += 1;
            continue;
        }
        unpacker.add(&entry, &mut archive)?;
    }
    unpacker.close_until(None)?;
    Ok(left_out)
}

struct Unpacker<'a> {
    tree: &'a Tree,
    /// Directories of the archive that contain the present entry, the outermost first.
    open: Vec<(Vec<u8>, OwnedFd, Metadata)>,
    buffer: Vec<u8>,
}

impl Unpacker<'_> {
    fn would_remove_mount(&self, entry: &Entry) -> bool {
        self.tree.has_excluded_below(&entry.path) && entry.kind != Kind::Directory
    }

    fn add<R: Read>(
        &mut self,
        entry: &Entry,
        archive: &mut TarReader<R>,
    ) -> Result<(), StateError> {
        self.close_until(Some(&entry.path))?;
        if entry.path.is_empty() {
            return self.begin_directory(entry, None);
        }
        let (above, name) = split(&entry.path);
        let parent = self.directory(above)?;
        let metadata = &entry.metadata;
        make_room(&parent, name, &entry.kind)?;
        let failed = StateError::io::<Errno>;
        match &entry.kind {
            Kind::Whiteout => Ok(()),
            Kind::Directory => self.begin_directory(entry, Some((&parent, name))),
            Kind::File { size } => {
                let ranges = [(0, *size)];
                self.file((&parent, name), metadata, *size, &ranges, archive)
            }
            Kind::Sparse { size, ranges } => {
                self.file((&parent, name), metadata, *size, ranges, archive)
            }
            Kind::HardLink(target) => {
                let (above, target) = split(target);
                let target_parent = self.directory(above)?;
                let linked = linkat(target_parent, target, parent, name, AtFlags::empty());
                linked.map_err(failed("create a link"))
            }
            Kind::Symlink(target) => {
                symlinkat(&**target, &parent, name).map_err(failed("create a link"))?;
                let applied = metadata.apply_at(parent.as_fd(), name, FileType::Symlink);
                applied.map_err(StateError::io("set the owner of a link"))
            }
            Kind::Fifo => {
                let made = mknodat(&parent, name, FileType::Fifo, Mode::RUSR, 0);
                made.map_err(failed("create a pipe"))?;
                let applied = metadata.apply_at(parent.as_fd(), name, FileType::Fifo);
                applied.map_err(StateError::io("set the owner of a pipe"))
            }
        }
    }

    /// Opens a directory below the root.
    fn directory(&self, path: &[u8]) -> Result<OwnedFd, StateError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let path = if path.is_empty() { b"." } else { path };
        let opened = openat2(&self.tree.root, path, flags, Mode::empty(), resolve);
        opened.map_err(StateError::io("open a directory of the archive"))
    }

    /// Creates a directory or opens it. Its time is set when its content is complete.
    fn begin_directory(
        &mut self,
        entry: &Entry,
        place: Option<(&OwnedFd, &[u8])>,
    ) -> Result<(), StateError> {
        let failed = StateError::io::<Errno>;
        if let Some((parent, name)) = place {
            match mkdirat(parent, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(failed("create a directory")(error)),
            }
        }
        let directory = self.directory(&entry.path)?;
        let applied = entry.metadata.apply(&directory);
        applied.map_err(StateError::io("set the owner of a directory"))?;
        let metadata = entry.metadata.clone();
        self.open.push((entry.path.clone(), directory, metadata));
        Ok(())
    }

    /// Ends directories that do not contain `path`.
    fn close_until(&mut self, path: Option<&[u8]>) -> Result<(), StateError> {
        while let Some((top, ..)) = self.open.last() {
            if path.is_some_and(|path| is_at_or_below(path, top)) {
                return Ok(());
            }
            if let Some((_, directory, metadata)) = self.open.pop() {
                let applied = metadata.apply_time(directory);
                applied.map_err(StateError::io("set the time of a directory"))?;
            }
        }
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        (parent, name): (&OwnedFd, &[u8]),
        metadata: &Metadata,
        size: u64,
        ranges: &[(u64, u64)],
        archive: &mut TarReader<R>,
    ) -> Result<(), StateError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(parent, name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(StateError::io("create a file"))?);
        for (offset, length) in ranges {
            let moved = file.seek(SeekFrom::Start(*offset));
            moved.map_err(StateError::io("write a file"))?;
            let mut left = *length;
            while left > 0 {
                let wanted = usize::try_from(left).map_or(BUFFER_BYTES, |n| n.min(BUFFER_BYTES));
                let count = archive.read(&mut self.buffer[..wanted])?;
                let written = file.write_all(&self.buffer[..count]);
                written.map_err(StateError::io("write a file"))?;
                left -= count as u64;
            }
        }
        ftruncate(&file, size).map_err(StateError::io("write a file"))?;
        let applied = metadata
            .apply(&file)
            .and_then(|()| metadata.apply_time(&file));
        applied.map_err(StateError::io("set the owner of a file"))
    }
}

/// Removes what is in the place of an entry; a directory may stay one.
fn make_room(parent: &OwnedFd, name: &[u8], kind: &Kind) -> Result<(), StateError> {
    if *kind == Kind::Directory {
        let found = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_directory =
            |found: rustix::fs::Stat| FileType::from_raw_mode(found.st_mode).is_dir();
        if found.is_ok_and(is_directory) {
            return Ok(());
        }
    }
    let removed = remove_tree(parent.as_fd(), name);
    removed.map_err(StateError::io("remove a file of the image"))
}
