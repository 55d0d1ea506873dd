//! Entries of a tar archive (POSIX.1-2001 pax and GNU), with bounded extension headers.

mod extension;
mod number;
mod path;

use rustix::fs::Timespec;
use tar::{EntryType, Header};

use self::extension::PaxRecords;
use self::number::{bounded, signed, unsigned};
pub(super) use self::path::MAX_DEPTH;
use self::path::{MAX_PATH, bounded_link, clean, within};
use super::UnpackError;
use super::entry::{Entry, Kind, shown};
use super::metadata::Metadata;
use super::stream::Content;

const BLOCK: u64 = 512;
/// Bytes of the extension headers of one entry, of all kinds.
const MAX_EXTENSION: u64 = 1 << 20;
/// Bytes after the end of the archive, which some programs pad.
const MAX_PADDING: u64 = 16 << 20;

#[derive(Debug)]
pub(super) struct Archive {
    content: Content,
    /// Bytes of the current entry's content that are not read yet.
    left: u64,
    /// Bytes after them, up to the next block.
    padding: u64,
}

/// Extension headers of one entry. GNU names take precedence, as in Go's reader.
#[derive(Debug, Default)]
struct Extension {
    pax: PaxRecords,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    /// Bytes of all so far.
    bytes: u64,
}

impl Archive {
    pub(super) fn new(content: Content) -> Self {
        Self {
            content,
            left: 0,
            padding: 0,
        }
    }

    pub(super) fn next_entry(&mut self) -> Result<Option<Entry>, UnpackError> {
        let mut extension = Extension::default();
        loop {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = unsigned("size", &header.as_old().size)?;
            match header.entry_type() {
                EntryType::XGlobalHeader => drop(self.extension(size, &mut extension)?),
                EntryType::XHeader => {
                    let records = self.extension(size, &mut extension)?;
                    extension.pax = PaxRecords::parse(&records)?;
                }
                EntryType::GNULongName => {
                    extension.long_path = Some(self.long_name(size, &mut extension)?);
                }
                EntryType::GNULongLink => {
                    extension.long_link = Some(self.long_name(size, &mut extension)?);
                }
                _ => return self.entry(&header, extension).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header, extension: Extension) -> Result<Entry, UnpackError> {
        let mut pax = extension.pax;
        let path = extension.long_path.or(pax.path.take());
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let stated = pax
            .size
            .map_or_else(|| unsigned("size", &header.as_old().size), Ok);
        let size = stated.and_then(bounded_size)?;
        let link = extension.long_link.or(pax.link.take());
        let link = link.or_else(|| header.link_name_bytes().map(Into::into));
        let kind = kind(header, &path, link.unwrap_or_default(), size)?;
        self.begin(if matches!(kind, Kind::File { .. }) {
            size
        } else {
            0
        });
        Ok(Entry {
            path: clean(&path)?,
            kind,
            metadata: metadata(header, pax)?,
        })
    }

    /// Begins content of `size` bytes.
    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, UnpackError> {
        let mut header = Header::new_old();
        if !self.block(header.as_mut_bytes())? {
            return Ok(None);
        }
        if header.as_bytes() == &[0; 512] {
            let mut second = [0; 512];
            let is_end = !self.block(&mut second)? || second == [0; 512];
            return if is_end {
                Ok(None)
            } else {
                Err(UnpackError::Format("content after its end"))
            };
        }
        check_sum(&header)?;
        Ok(Some(header))
    }

    /// Fills a block; false at the end of the content.
    fn block(&mut self, block: &mut [u8; 512]) -> Result<bool, UnpackError> {
        let mut filled = 0;
        while filled < block.len() {
            let bytes = self.content.next((block.len() - filled) as u64)?;
            match bytes.len() {
                0 if filled == 0 => return Ok(false),
                0 => return Err(UnpackError::Truncated),
                count => block[filled..filled + count].copy_from_slice(bytes),
            }
            filled += bytes.len();
        }
        Ok(true)
    }

    /// Next bytes of the entry's content; empty at its end.
    pub(super) fn content(&mut self) -> Result<&[u8], UnpackError> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let bytes = self.content.next(self.left)?;
        if bytes.is_empty() {
            return Err(UnpackError::Truncated);
        }
        self.left -= bytes.len() as u64;
        Ok(bytes)
    }

    pub(super) fn skip_content(&mut self) -> Result<(), UnpackError> {
        while !self.content()?.is_empty() {}
        while self.padding > 0 {
            let read = self.content.next(self.padding)?.len() as u64;
            if read == 0 {
                return Err(UnpackError::Truncated);
            }
            self.padding -= read;
        }
        Ok(())
    }

    /// Content of an extension header.
    fn extension(&mut self, size: u64, extension: &mut Extension) -> Result<Vec<u8>, UnpackError> {
        let bytes = extension.bytes.saturating_add(size);
        within("extension header", bytes, MAX_EXTENSION)?;
        extension.bytes = bytes + BLOCK;
        self.begin(size);
        let mut content = Vec::new();
        loop {
            let bytes = self.content()?;
            if bytes.is_empty() {
                break;
            }
            content.extend_from_slice(bytes);
        }
        self.skip_content()?;
        Ok(content)
    }

    fn long_name(&mut self, size: u64, extension: &mut Extension) -> Result<Vec<u8>, UnpackError> {
        within("path", size, MAX_PATH + 1)?;
        let mut name = self.extension(size, extension)?;
        let end = name.iter().position(|byte| *byte == 0);
        name.truncate(end.unwrap_or(name.len()));
        Ok(name)
    }

    /// Reads what follows the end of the archive, which belongs to its digest.
    pub(super) fn finish(&mut self) -> Result<(), UnpackError> {
        let mut padding = 0;
        loop {
            let read = self.content.next(u64::MAX)?.len() as u64;
            if read == 0 {
                return Ok(());
            }
            padding += read;
            within("padding after the end", padding, MAX_PADDING)?;
        }
    }
}

/// Compares the sum of a header's bytes, in which its own field counts as blanks.
fn check_sum(header: &Header) -> Result<(), UnpackError> {
    let (before, rest) = header.as_bytes().split_at(148);
    let counted = before.iter().chain(&rest[8..]).copied().map(u64::from);
    let sum = counted.sum::<u64>() + 8 * u64::from(b' ');
    let what = "checksum of a header";
    if unsigned(what, &header.as_old().cksum)? == sum {
        return Ok(());
    }
    Err(UnpackError::Format(what))
}

fn bounded_size(size: u64) -> Result<u64, UnpackError> {
    i64::try_from(size).map_err(|_| UnpackError::Format("size"))?;
    Ok(size)
}

fn kind(header: &Header, path: &[u8], link: Vec<u8>, size: u64) -> Result<Kind, UnpackError> {
    let is_old = header.as_old().linkflag[0] == 0;
    Ok(match header.entry_type() {
        // Archives from before POSIX.
        EntryType::Regular if is_old && path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => Kind::File { size },
        EntryType::Directory => Kind::Directory,
        EntryType::Fifo => Kind::Fifo,
        EntryType::Symlink => Kind::Symlink(bounded_link(link)?),
        EntryType::Link => Kind::HardLink(clean(&link)?),
        EntryType::Block | EntryType::Char => return Err(UnpackError::Device(shown(path))),
        other => return Err(UnpackError::Kind(shown(path), other.as_byte().into())),
    })
}

fn metadata(header: &Header, pax: PaxRecords) -> Result<Metadata, UnpackError> {
    let fields = header.as_old();
    let id = |stated: Option<u64>, field: &[u8]| {
        let id = stated.map_or_else(|| unsigned("owner", field), Ok)?;
        u32::try_from(id).map_err(|_| UnpackError::Format("owner"))
    };
    let of_header =
        || -> Result<Timespec, UnpackError> { Ok(bounded(signed("time", &fields.mtime)?, 0)) };
    let mode = unsigned("mode", &fields.mode)? & 0o7777;
    Ok(Metadata {
        mode: u32::try_from(mode).unwrap_or_default(),
        uid: id(pax.uid, &fields.uid)?,
        gid: id(pax.gid, &fields.gid)?,
        modified: pax.modified.map_or_else(of_header, Ok)?,
        xattrs: pax.xattrs,
    })
}
