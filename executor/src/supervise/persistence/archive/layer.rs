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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry {
            path: path.as_bytes().to_vec(),
            kind,
            metadata: Metadata {
                mode: 0o640,
                uid: 7,
                gid: 3_000_000,
                modified: (1_000_000_000, 5),
                xattrs: vec![(b"user.a".to_vec(), b"\0=".to_vec())],
            },
        }
    }

    fn archive(entries: &[(Entry, &[u8])]) -> Vec<u8> {
        let mut tar = TarWriter::new(Vec::new(), u64::MAX);
        for (entry, content) in entries {
            tar.begin(entry).unwrap();
            tar.put(content).unwrap();
            tar.pad(content.len() as u64).unwrap();
        }
        tar.finish().unwrap()
    }

    fn layer(archive: &[u8], limit: u64) -> Result<Vec<u8>, StateError> {
        let mut layer = Vec::new();
        convert(archive, &mut layer, limit, Deadline::NONE)?;
        Ok(layer)
    }

    #[test]
    fn layer_has_markers_whole_files_and_all_attributes() {
        let whiteout = |path| (entry(path, Kind::Whiteout), &b""[..]);
        let directory = |path| (entry(path, Kind::Directory), &b""[..]);
        let sparse = Kind::Sparse {
            size: 2000,
            ranges: vec![(512, 3), (1024, 2)],
        };
        let archive = archive(&[
            directory(""),
            whiteout("gone"),
            whiteout("replaced"),
            directory("replaced"),
            (entry("replaced/f", Kind::File { size: 2 }), b"hi"),
            whiteout("turned"),
            (entry("turned", Kind::File { size: 1 }), b"t"),
            (entry("holes", sparse), b"abcde"),
            whiteout("x/last"),
        ]);
        let layer = layer(&archive, u64::MAX).unwrap();
        let mut found = BTreeMap::new();
        let mut order = Vec::new();
        for entry in tar::Archive::new(&*layer).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let extensions = entry.pax_extensions().unwrap();
            let extensions = extensions.into_iter().flatten().map(|record| {
                let record = record.unwrap();
                (record.key_bytes().to_vec(), record.value_bytes().to_vec())
            });
            let extensions = extensions.collect::<BTreeMap<_, _>>();
            let header = entry.header().clone();
            let owner = (header.uid().unwrap(), header.gid().unwrap());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            order.push(path.clone());
            found.insert(path, (owner, extensions, content));
        }
        let expected = [
            "./",
            ".wh.gone",
            "replaced",
            "replaced/.wh..wh..opq",
            "replaced/f",
            "turned",
            "holes",
            "x/.wh.last",
        ];
        assert_eq!(order, expected);
        let mut holes = vec![0; 2000];
        holes[512..515].copy_from_slice(b"abc");
        holes[1024..1026].copy_from_slice(b"de");
        let (owner, extensions, content) = &found["holes"];
        assert_eq!((*owner, content), ((7, 3_000_000), &holes));
        assert_eq!(extensions[&b"SCHILY.xattr.user.a"[..]], b"\0=");
        assert_eq!(extensions[&b"mtime"[..]], b"1000000000.000000005");
        assert_eq!(extensions.len(), 2, "{extensions:?}");
        assert_eq!(found["replaced"].0, (7, 3_000_000));
    }

    #[test]
    fn holes_count_towards_the_limit() {
        let kind = Kind::Sparse {
            size: 1 << 40,
            ranges: vec![(0, 1)],
        };
        let archive = archive(&[(entry("holes", kind), b"a")]);
        let refused = layer(&archive, 1 << 20);
        assert!(matches!(refused, Err(StateError::Bytes(_))));
    }
}
