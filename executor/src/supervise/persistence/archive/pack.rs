//! Writing of the changes of a tree into an archive.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};

use crds::contract::persistence::SaveLimits;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::changes::{self, Change};
use super::entry::{Entry, Kind, has_whiteout_name};
use super::list::FileList;
use super::metadata::Metadata;
use super::sparse;
use super::tar_writer::{TarWriter, put_zeros};
use super::upper::{HiddenDirectories, is_whiteout};
use super::walk::{Found, Tree, walk};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;

const BUFFER_BYTES: usize = 128 << 10;

/// Counts of a finished archive.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) files: u64,
    /// Files that cannot be kept: their name is that of a whiteout, they cannot be read, or they
    /// are too deep. Sockets and devices are not counted.
    pub(super) left_out: u64,
}

/// Writes all changes, and returns the writer.
pub(super) fn pack<W: Write>(
    tree: &Tree,
    list: &FileList,
    to: W,
    limits: SaveLimits,
    deadline: Deadline,
) -> Result<(Packed, W), StateError> {
    let mut packer = Packer::new(to, limits, deadline);
    let too_deep = changes::visit(tree, list, deadline, |change| match change {
        Change::Present(found) => packer.present(&found),
        Change::Gone(path) => packer.gone(path),
    })?;
    packer.finish(too_deep)
}

/// Writes all files of a tree.
pub(super) fn pack_all<W: Write>(
    tree: &Tree,
    to: W,
    limits: SaveLimits,
    deadline: Deadline,
) -> Result<(Packed, W), StateError> {
    let mut packer = Packer::new(to, limits, deadline);
    let too_deep = walk(tree, deadline, |found| packer.present(&found))?;
    packer.finish(too_deep)
}

/// Writes the files of an upper directory, and what they hide. `merged` is the overlay.
pub(super) fn pack_upper<W: Write>(
    upper: &Tree,
    merged: &Tree,
    to: W,
    limits: SaveLimits,
    deadline: Deadline,
) -> Result<(Packed, W), StateError> {
    let mut packer = Packer::new(to, limits, deadline);
    let mut hidden = HiddenDirectories::new(merged);
    let too_deep = walk(upper, deadline, |found| {
        if is_whiteout(&found) {
            return packer.gone(found.path);
        }
        if hidden.hides(&found)? {
            packer.gone(found.path)?;
        }
        packer.present(&found)
    })?;
    packer.finish(too_deep)
}

struct Packer<W> {
    max_files: u64,
    writer: TarWriter<W>,
    /// First path of each file with several names.
    names: HashMap<(u64, u64), Vec<u8>>,
    packed: Packed,
    buffer: Vec<u8>,
    deadline: Deadline,
}

impl<W: Write> Packer<W> {
    fn new(to: W, limits: SaveLimits, deadline: Deadline) -> Self {
        Self {
            max_files: limits.files,
            writer: TarWriter::new(to, limits.bytes),
            names: HashMap::new(),
            packed: Packed::default(),
            buffer: vec![0; BUFFER_BYTES],
            deadline,
        }
    }

    fn finish(mut self, too_deep: u64) -> Result<(Packed, W), StateError> {
        self.packed.left_out += too_deep;
        Ok((self.packed, self.writer.finish()?))
    }

    fn present(&mut self, found: &Found<'_>) -> Result<(), StateError> {
        self.count()?;
        if has_whiteout_name(found.path) {
            self.packed.left_out += 1;
            return Ok(());
        }
        self.add(found)
    }

    fn gone(&mut self, path: &[u8]) -> Result<(), StateError> {
        if has_whiteout_name(path) {
            // No image has such a file.
            return Ok(());
        }
        self.count()?;
        self.hide(path)
    }

    fn count(&mut self) -> Result<(), StateError> {
        self.packed.files += 1;
        if self.packed.files > self.max_files {
            return Err(StateError::Files(self.max_files));
        }
        Ok(())
    }

    fn hide(&mut self, path: &[u8]) -> Result<(), StateError> {
        self.writer.begin(&Entry {
            path: path.to_vec(),
            kind: Kind::Whiteout,
            metadata: Metadata {
                mode: 0,
                uid: 0,
                gid: 0,
                modified: (0, 0),
                xattrs: Vec::new(),
            },
        })
    }

    fn add(&mut self, found: &Found<'_>) -> Result<(), StateError> {
        if let Some(first) = self.first_name(found) {
            return self.begin(found, Kind::HardLink(first)).map(drop);
        }
        match found.kind() {
            FileType::RegularFile => self.file(found),
            FileType::Directory => self.directory(found),
            FileType::Fifo => self.begin(found, Kind::Fifo).map(drop),
            FileType::Symlink => {
                let target = match readlinkat(found.directory, found.name, Vec::new()) {
                    Ok(target) => target,
                    // Removed or replaced by a program that runs.
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
                    Err(error) => return Err(StateError::io("read a link")(error)),
                };
                self.begin(found, Kind::Symlink(target.into_bytes()))
                    .map(drop)
            }
            // Sockets belong to a process, and devices to the node.
            _ => Ok(()),
        }
    }

    /// Earlier path of a file with several names. The first one is noted.
    fn first_name(&mut self, found: &Found<'_>) -> Option<Vec<u8>> {
        let kinds = [FileType::RegularFile, FileType::Symlink, FileType::Fifo];
        if found.stat.st_nlink < 2 || !kinds.contains(&found.kind()) {
            return None;
        }
        let id = (found.stat.st_dev, found.stat.st_ino);
        if let Some(first) = self.names.get(&id) {
            return Some(first.clone());
        }
        self.names.insert(id, found.path.to_vec());
        None
    }

    fn begin(&mut self, found: &Found<'_>, kind: Kind) -> Result<Entry, StateError> {
        let entry = Entry {
            path: found.path.to_vec(),
            kind,
            metadata: Metadata::new(found.stat),
        };
        self.writer.begin(&entry)?;
        Ok(entry)
    }

    /// Opens a file; `None` if it may not be read, which is counted, or is gone.
    fn open(&mut self, found: &Found<'_>, flags: OFlags) -> Result<Option<OwnedFd>, StateError> {
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(found.directory, found.name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            // Removed or replaced by a program that runs.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(Errno::ACCESS | Errno::PERM | Errno::NXIO) => {
                self.packed.left_out += 1;
                Ok(None)
            }
            Err(error) => Err(StateError::io("open a file")(error)),
        }
    }

    fn directory(&mut self, found: &Found<'_>) -> Result<(), StateError> {
        let Some(directory) = self.open(found, OFlags::DIRECTORY)? else {
            return Ok(());
        };
        let mut metadata = Metadata::new(found.stat);
        let read = metadata.read_xattrs(&directory);
        read.map_err(StateError::io("read the attributes of a directory"))?;
        self.writer.begin(&Entry {
            path: found.path.to_vec(),
            kind: Kind::Directory,
            metadata,
        })
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), StateError> {
        let Some(file) = self.open(found, OFlags::NONBLOCK)? else {
            // No later name may refer to it.
            self.names.remove(&(found.stat.st_dev, found.stat.st_ino));
            return Ok(());
        };
        let failed = StateError::io::<io::Error>;
        let mut file = File::from(file);
        let mut metadata = Metadata::new(found.stat);
        let read = metadata.read_xattrs(&file);
        read.map_err(failed("read the attributes of a file"))?;
        let size = u64::try_from(found.stat.st_size).unwrap_or_default();
        let blocks = u64::try_from(found.stat.st_blocks).unwrap_or_default();
        let ranges = if blocks * 512 < size {
            sparse::ranges(&file, size).map_err(failed("read a file with holes"))?
        } else {
            None
        };
        let (kind, ranges) = match ranges {
            Some(ranges) => (
                Kind::Sparse {
                    size,
                    ranges: ranges.clone(),
                },
                ranges,
            ),
            None => (Kind::File { size }, vec![(0, size)]),
        };
        let content = kind.content_bytes();
        self.writer.begin(&Entry {
            path: found.path.to_vec(),
            kind,
            metadata,
        })?;
        for (offset, length) in ranges {
            let moved = file.seek(SeekFrom::Start(offset));
            moved.map_err(failed("read a file"))?;
            self.copy(&mut file, length)?;
        }
        self.writer.pad(content)
    }

    /// Copies `length` bytes. A file that has become shorter is filled up.
    fn copy(&mut self, file: &mut File, length: u64) -> Result<(), StateError> {
        let mut left = length;
        while left > 0 {
            self.deadline.check()?;
            let wanted = usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
            let count = file.read(&mut self.buffer[..wanted]);
            let count = count.map_err(StateError::io("read a file"))?;
            if count == 0 {
                return put_zeros(&mut self.writer, left);
            }
            self.writer.put(&self.buffer[..count])?;
            left -= count as u64;
        }
        Ok(())
    }
}
