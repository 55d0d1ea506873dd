//! Writer of a tar archive in the format of image layers: ustar with pax headers, and whiteouts
//! (OCI image specification, "Image Layer Filesystem Changeset").

use std::io::Write;

use tar::{EntryType, Header};

use super::entry::{Entry, Kind, WHITEOUT, join, split};
use super::metadata::Metadata;
use super::pax::{PaxWriter, XATTR, time_to_text};
use super::sparse::to_map;
use crate::supervise::persistence::error::StateError;

const BLOCK: usize = 512;
/// Bytes of the fields for path and link.
const NAME_BYTES: usize = 100;

pub(super) struct TarWriter<W> {
    to: W,
    bytes: u64,
    limit: u64,
}

impl<W: Write> TarWriter<W> {
    /// Writer of an archive of at most `limit` bytes.
    pub(super) fn new(to: W, limit: u64) -> Self {
        Self {
            to,
            bytes: 0,
            limit,
        }
    }

    /// Writes the headers of an entry, and the map of a file with holes. Its content follows.
    pub(super) fn begin(&mut self, entry: &Entry) -> Result<(), StateError> {
        let mut pax = PaxWriter::default();
        let mut header = header(&entry.metadata);
        let map = Self::describe(entry, &mut header, &mut pax);
        let pax = pax.into_bytes();
        if !pax.is_empty() {
            let mut extension = Header::new_ustar();
            extension.set_entry_type(EntryType::XHeader);
            set_name(&mut extension.as_old_mut().name, b"PaxHeaders/entry");
            extension.set_mode(0o644);
            extension.set_mtime(0);
            extension.set_size(pax.len() as u64);
            extension.set_cksum();
            self.put(extension.as_bytes())?;
            self.put(&pax)?;
            self.pad(pax.len() as u64)?;
        }
        header.set_cksum();
        self.put(header.as_bytes())?;
        self.put(&map)
    }

    /// Fills in the header, and returns the map of a file with holes.
    fn describe(entry: &Entry, header: &mut Header, pax: &mut PaxWriter) -> Vec<u8> {
        let (metadata, mut map) = (&entry.metadata, Vec::new());
        let path = match &entry.kind {
            Kind::Whiteout => {
                let (directory, name) = split(&entry.path);
                join(directory, &[WHITEOUT, name].concat())
            }
            _ if entry.path.is_empty() => b"./".to_vec(),
            _ => entry.path.clone(),
        };
        let mut size = entry.kind.content_bytes();
        let kind = match &entry.kind {
            Kind::File { .. } | Kind::Whiteout => EntryType::Regular,
            Kind::Sparse { size: real, ranges } => {
                map = to_map(ranges);
                size += map.len() as u64;
                pax.add(b"GNU.sparse.major", b"1");
                pax.add(b"GNU.sparse.minor", b"0");
                pax.add(b"GNU.sparse.name", &path);
                pax.add(b"GNU.sparse.realsize", real.to_string().as_bytes());
                EntryType::Regular
            }
            Kind::Directory => EntryType::Directory,
            Kind::Fifo => EntryType::Fifo,
            Kind::Symlink(target) | Kind::HardLink(target) => {
                let field = &mut header.as_old_mut().linkname;
                add_text(field, pax, b"linkpath", target);
                if matches!(entry.kind, Kind::HardLink(_)) {
                    EntryType::Link
                } else {
                    EntryType::Symlink
                }
            }
        };
        add_text(&mut header.as_old_mut().name, pax, b"path", &path);
        header.set_entry_type(kind);
        header.set_size(size);
        if metadata.modified.1 != 0 || metadata.modified.0 < 0 {
            let text = time_to_text(metadata.modified.0, metadata.modified.1);
            pax.add(b"mtime", text.as_bytes());
        }
        for (name, value) in &metadata.xattrs {
            pax.add(&[XATTR, name].concat(), value);
        }
        map
    }

    /// Writes content.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(StateError::Bytes(self.limit));
        }
        let written = self.to.write_all(bytes);
        written.map_err(StateError::io("write the archive"))
    }

    /// Fills the last block of content of `size` bytes.
    pub(super) fn pad(&mut self, size: u64) -> Result<(), StateError> {
        // The rest of a division by 512 fits.
        let rest = usize::try_from(size % BLOCK as u64).unwrap_or_default();
        self.put(&[0; BLOCK][..(BLOCK - rest) % BLOCK])
    }

    /// Writes the end of the archive.
    pub(super) fn finish(mut self) -> Result<W, StateError> {
        self.put(&[0; 2 * BLOCK])?;
        Ok(self.to)
    }
}

fn header(metadata: &Metadata) -> Header {
    let mut header = Header::new_ustar();
    header.set_mode(metadata.mode);
    header.set_uid(metadata.uid.into());
    header.set_gid(metadata.gid.into());
    header.set_mtime(u64::try_from(metadata.modified.0).unwrap_or_default());
    header
}

/// Sets a field, and adds a record if the text does not fit or is not ASCII.
fn add_text(field: &mut [u8; NAME_BYTES], pax: &mut PaxWriter, key: &[u8], text: &[u8]) {
    if text.len() > NAME_BYTES || !text.is_ascii() {
        pax.add(key, text);
    }
    set_name(field, text);
}

fn set_name(field: &mut [u8; NAME_BYTES], text: &[u8]) {
    let length = text.len().min(NAME_BYTES);
    field[..length].copy_from_slice(&text[..length]);
}

/// Writes zeros in place of content that is missing.
pub(super) fn put_zeros<W: Write>(
    writer: &mut TarWriter<W>,
    mut count: u64,
) -> Result<(), StateError> {
    let zeros = [0; 4096];
    while count > 0 {
        let length = usize::try_from(count).map_or(zeros.len(), |count| count.min(zeros.len()));
        writer.put(&zeros[..length])?;
        count -= length as u64;
    }
    Ok(())
}
