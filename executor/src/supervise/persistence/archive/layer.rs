//! Archive of changed files as a layer of an image (OCI image specification, "Image Layer Filesystem
//! Changeset"). An archive is one but for two things: directories that replace others, which get an
//! opaque marker, and files with holes, for which layers have no common form.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};

use crds::contract::persistence::SaveLimits;

use super::entry::{Entry, Kind, join};
use super::header::ArchiveHeader;
use super::metadata::Metadata;
use super::seal::{Opener, StateKey};
use super::sparse::Range;
use super::tar_reader::TarReader;
use super::tar_writer::{TarWriter, put_zeros};
use super::unpack::check;
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;

/// Name of the file that hides what lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
const BUFFER_BYTES: usize = 128 << 10;

/// Archive that has been verified.
#[derive(derive_more::Debug)]
pub(in crate::supervise::persistence) struct LayerArchive {
    #[debug(skip)]
    source: Source,
    /// Bytes of the layer.
    bytes: u64,
}

struct Source {
    file: File,
    /// Offset of the content.
    start: u64,
    key: StateKey,
    header: ArchiveHeader,
    limits: SaveLimits,
}

impl LayerArchive {
    /// Verifies all of an archive behind its header.
    pub(super) fn new(
        mut file: File,
        header: ArchiveHeader,
        key: StateKey,
        limits: SaveLimits,
        deadline: Deadline,
    ) -> Result<Self, StateError> {
        let start = file.stream_position();
        let mut source = Source {
            start: start.map_err(StateError::io("read the archive"))?,
            file,
            key,
            header,
            limits,
        };
        check(source.content()?, limits)?;
        let mut counted = Counter(0);
        source.convert(&mut counted, deadline)?;
        Ok(Self {
            source,
            bytes: counted.0,
        })
    }

    pub(in crate::supervise) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the layer.
    pub(in crate::supervise) fn write(
        mut self,
        to: impl Write,
        deadline: Deadline,
    ) -> Result<(), StateError> {
        self.source.convert(to, deadline)
    }
}

impl Source {
    fn content(&mut self) -> Result<Opener<&mut File>, StateError> {
        let rewound = self.file.seek(SeekFrom::Start(self.start));
        rewound.map_err(StateError::io("read the archive"))?;
        Opener::new(&mut self.file, &self.key, &self.header)
    }

    fn convert(&mut self, to: impl Write, deadline: Deadline) -> Result<(), StateError> {
        let limit = self.limits.bytes;
        convert(self.content()?, to, limit, deadline)
    }
}

/// Writes a checked archive as a layer of at most `limit` bytes.
fn convert(
    from: impl Read,
    to: impl Write,
    limit: u64,
    deadline: Deadline,
) -> Result<(), StateError> {
    let mut archive = TarReader::new(from);
    let mut layer = LayerWriter {
        tar: TarWriter::new(to, limit),
        buffer: vec![0; BUFFER_BYTES],
        deadline,
    };
    let mut hidden: Option<Entry> = None;
    while let Some(entry) = archive.next_entry()? {
        deadline.check()?;
        let replaces = hidden
            .as_ref()
            .is_some_and(|hidden| hidden.path == entry.path);
        if let Some(whiteout) = hidden.take().filter(|_| !replaces) {
            layer.tar.begin(&whiteout)?;
        }
        if entry.kind == Kind::Whiteout {
            // The next entry may be a directory in its place.
            hidden = Some(entry);
            continue;
        }
        layer.add(&entry, &mut archive)?;
        if replaces && entry.kind == Kind::Directory {
            layer.tar.begin(&opaque(&entry.path))?;
        }
    }
    if let Some(whiteout) = hidden {
        layer.tar.begin(&whiteout)?;
    }
    let mut to = layer.tar.finish()?;
    to.flush().map_err(StateError::io("send the layer"))
}

/// Marker in a directory that shows nothing of lower layers. A whiteout beside the directory would
/// hide the directory itself.
fn opaque(directory: &[u8]) -> Entry {
    Entry {
        path: join(directory, OPAQUE),
        kind: Kind::File { size: 0 },
        metadata: Metadata {
            mode: 0,
            uid: 0,
            gid: 0,
            modified: (0, 0),
            xattrs: Vec::new(),
        },
    }
}

struct LayerWriter<W> {
    tar: TarWriter<W>,
    buffer: Vec<u8>,
    deadline: Deadline,
}

impl<W: Write> LayerWriter<W> {
    fn add<R: Read>(
        &mut self,
        entry: &Entry,
        archive: &mut TarReader<R>,
    ) -> Result<(), StateError> {
        match &entry.kind {
            Kind::File { size } => {
                self.tar.begin(entry)?;
                self.copy(*size, archive)?;
                self.tar.pad(*size)
            }
            Kind::Sparse { size, ranges } => {
                let kind = Kind::File { size: *size };
                let whole = Entry {
                    kind,
                    ..entry.clone()
                };
                self.tar.begin(&whole)?;
                self.fill(*size, ranges, archive)
            }
            _ => self.tar.begin(entry),
        }
    }

    /// Copies a file with zeros in its holes.
    fn fill<R: Read>(
        &mut self,
        size: u64,
        ranges: &[Range],
        archive: &mut TarReader<R>,
    ) -> Result<(), StateError> {
        let mut at = 0;
        for (offset, length) in ranges {
            // The ranges are in order, do not overlap and end within the file.
            self.zeros(offset.saturating_sub(at))?;
            self.copy(*length, archive)?;
            at = offset.saturating_add(*length);
        }
        self.zeros(size.saturating_sub(at))?;
        self.tar.pad(size)
    }

    fn zeros(&mut self, mut count: u64) -> Result<(), StateError> {
        while count > 0 {
            self.deadline.check()?;
            let length = count.min(BUFFER_BYTES as u64);
            put_zeros(&mut self.tar, length)?;
            count -= length;
        }
        Ok(())
    }

    fn copy<R: Read>(&mut self, length: u64, archive: &mut TarReader<R>) -> Result<(), StateError> {
        let mut left = length;
        while left > 0 {
            self.deadline.check()?;
            let wanted = usize::try_from(left).map_or(BUFFER_BYTES, |left| left.min(BUFFER_BYTES));
            let count = archive.read(&mut self.buffer[..wanted])?;
            if count == 0 {
                return Err(StateError::Damaged("it ends too early"));
            }
            self.tar.put(&self.buffer[..count])?;
            left -= count as u64;
        }
        Ok(())
    }
}

/// Counts bytes.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
