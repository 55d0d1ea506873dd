//! Reader of archives of [`TarWriter`](super::tar_writer::TarWriter). It reads nothing else: every
//! other kind of entry is an error.

use std::io::{ErrorKind, Read};

use tar::{EntryType, Header};

use super::entry::{Entry, Kind, WHITEOUT, check_path, join, split};
use super::metadata::Metadata;
use super::pax::{self, XATTR, number, time_from_text};
use super::sparse::read_map;
use crate::supervise::persistence::error::StateError;

const BLOCK: usize = 512;
const MAX_EXTENSION_BYTES: u64 = 1 << 20;

pub(super) struct TarReader<R> {
    from: R,
    /// Bytes of the content of the entry that are not read yet, and of the padding after them.
    left: u64,
    padding: u64,
}

impl<R: Read> TarReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            left: 0,
            padding: 0,
        }
    }

    /// Skips the rest of an entry, and reads the next one. `None` after the end of the archive,
    /// which is also that of the file.
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, StateError> {
        self.skip()?;
        let mut records = Vec::new();
        let Some(mut header) = self.header()? else {
            return Ok(None);
        };
        if header.entry_type() == EntryType::XHeader {
            records = self.extension(&header)?;
            header = self.header()?.ok_or(StateError::Damaged("no entry"))?;
        }
        self.entry(&header, &pax::parse(&records)?).map(Some)
    }

    /// Reads content of the entry; 0 at its end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, StateError> {
        let length = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        self.fill(&mut buffer[..length])?;
        self.left -= length as u64;
        Ok(length)
    }

    fn entry(&mut self, header: &Header, records: &[(&[u8], &[u8])]) -> Result<Entry, StateError> {
        let damaged = |what| move || StateError::Damaged(what);
        let value = |key: &[u8]| {
            let found = records.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| *value)
        };
        let path = value(b"GNU.sparse.name").or(value(b"path"));
        let path = path.map_or_else(|| header.path_bytes().into_owned(), <[u8]>::to_vec);
        let mut path = if path == b"./" { Vec::new() } else { path };
        check_path(&path)?;
        let target = || {
            let stated = value(b"linkpath").map(<[u8]>::to_vec);
            let target = stated.or_else(|| Some(header.link_name_bytes()?.into_owned()));
            target.filter(|target| !target.is_empty() && !target.contains(&0))
        };
        let size = header.size().map_err(|_| StateError::Damaged("a size"))?;
        let mut kind = match header.entry_type() {
            EntryType::Regular => Kind::File { size },
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            EntryType::Symlink => Kind::Symlink(target().ok_or_else(damaged("a link"))?),
            EntryType::Link => {
                let target = target().ok_or_else(damaged("a link"))?;
                check_path(&target)?;
                Kind::HardLink(target)
            }
            _ => return Err(StateError::Damaged("an entry of an unknown kind")),
        };
        if matches!(kind, Kind::File { .. }) {
            self.begin(size);
        } else if size != 0 {
            return Err(StateError::Damaged("an entry with content"));
        }
        if let Some(real) = value(b"GNU.sparse.realsize") {
            kind = self.sparse(number(real).ok_or_else(damaged("a size"))?)?;
        }
        let (directory, name) = split(&path);
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            // Opaque directories are not written.
            if hidden.is_empty() || hidden.starts_with(WHITEOUT) || kind.content_bytes() > 0 {
                return Err(StateError::Damaged("a whiteout"));
            }
            path = join(directory, hidden);
            kind = Kind::Whiteout;
        }
        Ok(Entry {
            path,
            kind,
            metadata: metadata(header, records)?,
        })
    }

    fn sparse(&mut self, size: u64) -> Result<Kind, StateError> {
        let ranges = read_map(size, || {
            let mut block = [0; BLOCK];
            if self.left < BLOCK as u64 {
                return Err(StateError::Damaged("a map of holes"));
            }
            self.fill(&mut block)?;
            self.left -= BLOCK as u64;
            Ok(block)
        })?;
        let ranges = ranges.ok_or(StateError::Damaged("a map of holes"))?;
        let kind = Kind::Sparse { size, ranges };
        if kind.content_bytes() == self.left && i64::try_from(size).is_ok() {
            return Ok(kind);
        }
        Err(StateError::Damaged("a map of holes"))
    }

    fn extension(&mut self, header: &Header) -> Result<Vec<u8>, StateError> {
        let size = header.size().map_err(|_| StateError::Damaged("a size"))?;
        if size > MAX_EXTENSION_BYTES {
            return Err(StateError::Damaged("a long extension header"));
        }
        self.begin(size);
        let mut records = vec![0; usize::try_from(size).unwrap_or_default()];
        self.read(&mut records)?;
        self.skip()?;
        Ok(records)
    }

    /// The next header; `None` at the end.
    fn header(&mut self) -> Result<Option<Header>, StateError> {
        let mut header = Header::new_old();
        self.fill(header.as_mut_bytes())?;
        if *header.as_bytes() == [0; BLOCK] {
            let mut second = [0; BLOCK];
            self.fill(&mut second)?;
            let is_end = second == [0; BLOCK] && self.is_at_end()?;
            return if is_end {
                Ok(None)
            } else {
                Err(StateError::Damaged("content after its end"))
            };
        }
        let (before, after) = header.as_bytes().split_at(148);
        let bytes = before.iter().chain(&after[8..]);
        let sum = bytes.map(|byte| u32::from(*byte)).sum::<u32>() + 8 * u32::from(b' ');
        if header.cksum().is_ok_and(|stated| stated == sum) {
            return Ok(Some(header));
        }
        Err(StateError::Damaged("checksum of a header"))
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn skip(&mut self) -> Result<(), StateError> {
        let mut buffer = [0; 8192];
        while self.left > 0 {
            self.read(&mut buffer)?;
        }
        let padding = usize::try_from(self.padding).unwrap_or_default();
        self.padding = 0;
        self.fill(&mut buffer[..padding])
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), StateError> {
        self.from.read_exact(buffer).map_err(refused)
    }

    fn is_at_end(&mut self) -> Result<bool, StateError> {
        Ok(self.from.read(&mut [0]).map_err(refused)? == 0)
    }
}

/// Error of the decrypting reader.
fn refused(error: std::io::Error) -> StateError {
    match error.kind() {
        ErrorKind::InvalidData => {
            StateError::Damaged("it was changed, is incomplete or has another key")
        }
        ErrorKind::UnexpectedEof => StateError::Damaged("it ends too early"),
        _ => StateError::io("read the archive")(error),
    }
}

fn metadata(header: &Header, records: &[(&[u8], &[u8])]) -> Result<Metadata, StateError> {
    let wrong = || StateError::Damaged("owner, mode or time of a file");
    let id =
        |id: std::io::Result<u64>| u32::try_from(id.map_err(|_| wrong())?).map_err(|_| wrong());
    let seconds = header.mtime().map_err(|_| wrong())?;
    let mut metadata = Metadata {
        mode: header.mode().map_err(|_| wrong())? & 0o7777,
        uid: id(header.uid())?,
        gid: id(header.gid())?,
        modified: (i64::try_from(seconds).map_err(|_| wrong())?, 0),
        xattrs: Vec::new(),
    };
    for (key, value) in records {
        if *key == b"mtime" {
            metadata.modified = time_from_text(value).ok_or_else(wrong)?;
        } else if let Some(name) = key.strip_prefix(XATTR) {
            if name.is_empty() || name.contains(&0) {
                return Err(wrong());
            }
            metadata.xattrs.push((name.to_vec(), value.to_vec()));
        }
    }
    Ok(metadata)
}
