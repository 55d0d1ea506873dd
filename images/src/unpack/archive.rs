//! Entries of a tar archive (POSIX.1-2001 pax and GNU), with bounded extension headers.

use rustix::fs::Timespec;
use tar::{EntryType, Header};

use super::UnpackError;
use super::entry::{Entry, Kind, Metadata, shown};
use super::stream::Content;

const BLOCK: u64 = 512;
/// Bytes of a path, as in the kernel.
const MAX_PATH: u64 = 4096;
const MAX_PART: usize = 255;
/// Directories above a file.
const MAX_DEPTH: u64 = 512;
/// Bytes of the extension headers of one entry.
const MAX_EXTENSION: u64 = 1 << 20;
/// Bytes of one extended attribute, as in the kernel.
const MAX_XATTR: u64 = 64 << 10;
/// Bytes after the end of the archive, which some programs pad.
const MAX_PADDING: u64 = 16 << 20;

/// Prefix of extended attributes in pax headers.
const XATTR: &[u8] = b"SCHILY.xattr.";

#[derive(Debug)]
pub(super) struct Archive {
    content: Content,
    /// Bytes of the current entry's content that are not read yet.
    left: u64,
    /// Bytes after them, up to the next block.
    padding: u64,
}

/// Contents of the extension headers before an entry.
#[derive(Debug, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    modified: Option<Timespec>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
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
            let size = field("size", &header.as_old().size)?;
            match header.entry_type() {
                EntryType::XGlobalHeader => drop(self.extension(size, &mut extension)?),
                EntryType::XHeader => {
                    let records = self.extension(size, &mut extension)?;
                    extension.read(&records)?;
                }
                EntryType::GNULongName => {
                    extension.path = Some(self.long_name(size, &mut extension)?);
                }
                EntryType::GNULongLink => {
                    extension.link = Some(self.long_name(size, &mut extension)?);
                }
                _ => return self.entry(&header, extension).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header, extension: Extension) -> Result<Entry, UnpackError> {
        let raw = extension
            .path
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let path = clean(&raw)?;
        let fields = header.as_old();
        let size = extension
            .size
            .map_or_else(|| field("size", &fields.size), Ok)?;
        let link = || {
            let link = extension.link.clone();
            let link = link.or_else(|| header.link_name_bytes().map(Into::into));
            link.unwrap_or_default()
        };
        let kind = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous if raw.ends_with(b"/") => Kind::Directory,
            EntryType::Regular | EntryType::Continuous => Kind::File { size },
            EntryType::Directory => Kind::Directory,
            EntryType::Fifo => Kind::Fifo,
            EntryType::Symlink => Kind::Symlink(bounded_link(link())?),
            EntryType::Link => Kind::HardLink(clean(&link())?),
            EntryType::Block | EntryType::Char => return Err(UnpackError::Device(shown(&path))),
            other => {
                return Err(UnpackError::Kind(shown(&path), other.as_byte().into()));
            }
        };
        self.left = if let Kind::File { size } = kind {
            size
        } else {
            0
        };
        self.padding = self.left.next_multiple_of(BLOCK) - self.left;
        let id = |stated: Option<u64>, of_header: &[u8]| {
            let id = stated.map_or_else(|| field("owner", of_header), Ok)?;
            u32::try_from(id).map_err(|_| UnpackError::Format("owner"))
        };
        let modified = match extension.modified {
            Some(modified) => modified,
            None => Timespec {
                tv_sec: signed("time", &fields.mtime)?,
                tv_nsec: 0,
            },
        };
        let mode = field("mode", &fields.mode)? & 0o7777;
        Ok(Entry {
            path,
            kind,
            metadata: Metadata {
                mode: u32::try_from(mode).unwrap_or_default(),
                uid: id(extension.uid, &fields.uid)?,
                gid: id(extension.gid, &fields.gid)?,
                modified,
                xattrs: extension.xattrs,
            },
        })
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, UnpackError> {
        let mut header = Header::new_old();
        if !self.block(header.as_mut_bytes())? {
            return Ok(None);
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            let mut second = [0; 512];
            let is_end = !self.block(&mut second)? || second == [0; 512];
            return if is_end {
                Ok(None)
            } else {
                Err(UnpackError::Format("content after its end"))
            };
        }
        // The sum counts its own field as blanks.
        let (before, rest) = bytes.split_at(148);
        let counted = before.iter().chain(&rest[8..]).copied().map(u32::from);
        let sum = counted.sum::<u32>() + 8 * u32::from(b' ');
        let what = "checksum of a header";
        if field(what, &header.as_old().cksum)? == u64::from(sum) {
            return Ok(Some(header));
        }
        Err(UnpackError::Format(what))
    }

    /// Fills a block; false at the end of the content.
    fn block(&mut self, block: &mut [u8; 512]) -> Result<bool, UnpackError> {
        let mut filled = 0;
        while filled < block.len() {
            let bytes = self.read((block.len() - filled) as u64)?;
            match bytes.len() {
                0 if filled == 0 => return Ok(false),
                0 => return Err(UnpackError::Truncated),
                count => block[filled..filled + count].copy_from_slice(bytes),
            }
            filled += bytes.len();
        }
        Ok(true)
    }

    fn read(&mut self, limit: u64) -> Result<&[u8], UnpackError> {
        self.content.next(limit).map_err(UnpackError::Read)
    }

    /// Next bytes of the entry's content; empty at its end.
    pub(super) fn content(&mut self) -> Result<&[u8], UnpackError> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let bytes = self.content.next(self.left).map_err(UnpackError::Read)?;
        if bytes.is_empty() {
            return Err(UnpackError::Truncated);
        }
        self.left -= bytes.len() as u64;
        Ok(bytes)
    }

    pub(super) fn skip_content(&mut self) -> Result<(), UnpackError> {
        while !self.content()?.is_empty() {}
        while self.padding > 0 {
            let read = self.read(self.padding)?.len() as u64;
            if read == 0 {
                return Err(UnpackError::Truncated);
            }
            self.padding -= read;
        }
        Ok(())
    }

    /// Content of an extension header.
    fn extension(&mut self, size: u64, extension: &mut Extension) -> Result<Vec<u8>, UnpackError> {
        extension.bytes = extension.bytes.saturating_add(size);
        within("extension header", extension.bytes, MAX_EXTENSION)?;
        (self.left, self.padding) = (size, size.next_multiple_of(BLOCK) - size);
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
            let read = self.read(u64::MAX)?.len() as u64;
            if read == 0 {
                return Ok(());
            }
            padding += read;
            within("padding after the end", padding, MAX_PADDING)?;
        }
    }
}

impl Extension {
    /// Reads records of the form `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut records: &[u8]) -> Result<(), UnpackError> {
        const BAD: UnpackError = UnpackError::Format("pax header");
        while !records.is_empty() {
            let blank = records.iter().position(|byte| *byte == b' ').ok_or(BAD)?;
            let length: usize = parse(&records[..blank]).ok_or(BAD)?;
            if length > records.len() || length < blank + 2 {
                return Err(BAD);
            }
            let (record, rest) = records.split_at(length);
            records = rest;
            let record = record[blank + 1..].strip_suffix(b"\n").ok_or(BAD)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or(BAD)?;
            self.set(&record[..equals], &record[equals + 1..])
                .ok_or(BAD)??;
        }
        Ok(())
    }

    /// Applies a record; `None` if its value is not valid.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Option<Result<(), UnpackError>> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(parse(value)?),
            b"uid" => self.uid = Some(parse(value)?),
            b"gid" => self.gid = Some(parse(value)?),
            b"mtime" => self.modified = Some(time(value)?),
            _ if key.starts_with(b"GNU.sparse.") => {
                return Some(Err(UnpackError::Kind("sparse file".into(), 'S')));
            }
            _ => {
                if let Some(name) = key.strip_prefix(XATTR) {
                    let size = value.len() as u64;
                    if let Err(error) = within("extended attribute", size, MAX_XATTR) {
                        return Some(Err(error));
                    }
                    self.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Some(Ok(()))
    }
}

/// Number of a header: octal digits, or binary after a set first bit (GNU). Empty is 0.
fn signed(what: &'static str, field: &[u8]) -> Result<i64, UnpackError> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        let is_negative = field[0] & 0x40 != 0;
        let number = field
            .iter()
            .enumerate()
            .fold(-i128::from(is_negative), |sum, (at, byte)| {
                let digits = if at == 0 && !is_negative {
                    byte & 0x7f
                } else {
                    *byte
                };
                (sum << 8) | i128::from(digits)
            });
        return i64::try_from(number).map_err(|_| UnpackError::Format(what));
    }
    let end = field.iter().position(|byte| *byte == 0);
    let digits = field[..end.unwrap_or(field.len())].trim_ascii();
    let text = std::str::from_utf8(digits).unwrap_or("?");
    match text {
        "" => Ok(0),
        text => i64::from_str_radix(text, 8).map_err(|_| UnpackError::Format(what)),
    }
}

fn field(what: &'static str, field: &[u8]) -> Result<u64, UnpackError> {
    u64::try_from(signed(what, field)?).map_err(|_| UnpackError::Format(what))
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds with up to nine decimals.
fn time(text: &[u8]) -> Option<Timespec> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds: i64 = whole.parse().ok()?;
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let mut nanoseconds: i64 = digits.parse().ok()?;
    if whole.starts_with('-') && nanoseconds > 0 {
        seconds = seconds.checked_sub(1)?;
        nanoseconds = 1_000_000_000 - nanoseconds;
    }
    Some(Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    })
}

fn within(what: &'static str, size: u64, limit: u64) -> Result<(), UnpackError> {
    if size > limit {
        return Err(UnpackError::TooLong { what, size, limit });
    }
    Ok(())
}

fn bounded_link(target: Vec<u8>) -> Result<Vec<u8>, UnpackError> {
    within("link target", target.len() as u64, MAX_PATH - 1)?;
    if target.is_empty() || target.contains(&0) {
        return Err(UnpackError::Format("link target"));
    }
    Ok(target)
}

/// The path relative to the root, without `.`, `..` and empty parts. One that leaves the root is
/// refused; a leading `/` is that of the image.
fn clean(path: &[u8]) -> Result<Vec<u8>, UnpackError> {
    within("path", path.len() as u64, MAX_PATH)?;
    if path.contains(&0) {
        return Err(UnpackError::Format("path"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                let left = parts.pop();
                left.ok_or_else(|| UnpackError::Path(shown(path)))?;
            }
            _ => {
                within("name", part.len() as u64, MAX_PART as u64)?;
                parts.push(part);
            }
        }
    }
    within("depth of a path", parts.len() as u64, MAX_DEPTH)?;
    Ok(parts.join(&b'/'))
}
