//! Tar archives of build contexts. Long names and pax headers are read here and not by the library,
//! which keeps them in memory at any size.

use std::io::{self, Read};

use data_encoding::HEXLOWER;
use ring::digest::{Context as Hasher, SHA256, SHA256_OUTPUT_LEN};
use tar::{Entry, EntryType, PaxExtensions};

use super::path::{normalize, resolve_link};
use super::{BuildContext, ContextError, ContextFiles};

/// Bytes of a pax header or a long name.
const MAX_HEADER_BYTES: u64 = 64 << 10;
/// Bytes of a Dockerfile; that of a client has 15 KiB.
const MAX_DOCKERFILE_BYTES: u64 = 1 << 20;
const DOCKERFILE: &[u8] = b"Dockerfile";
/// Characters of a path in an error.
const MAX_SHOWN_CHARS: usize = 128;
const CHUNK_BYTES: usize = 16 << 10;

type Hash = [u8; SHA256_OUTPUT_LEN];

/// State of reading one archive.
#[derive(Debug, Default)]
pub(super) struct Archive {
    dockerfile: Option<String>,
    /// One hash per entry.
    entries: Vec<Hash>,
    /// Path and link target of the next entry, from headers before it.
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    files: Option<ContextFiles>,
}

impl Archive {
    /// Archive whose files are kept in `files`.
    pub(super) fn new(files: Option<ContextFiles>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }

    pub(super) fn read(
        mut self,
        from: impl Read,
        max: usize,
    ) -> Result<BuildContext, ContextError> {
        let mut archive = tar::Archive::new(from);
        for (number, entry) in archive.entries()?.raw(true).enumerate() {
            if number >= max {
                return Err(ContextError::ManyEntries { max });
            }
            self.read_entry(&mut entry?)?;
        }
        let dockerfile = self.dockerfile.ok_or(ContextError::NoDockerfile)?;
        self.entries.sort_unstable();
        let mut all = Hasher::new(&SHA256);
        self.entries.iter().for_each(|entry| all.update(entry));
        let digest = HEXLOWER.encode(all.finish().as_ref());
        Ok(BuildContext {
            dockerfile,
            digest: format!("sha256:{digest}"),
            files: self.files,
        })
    }

    fn read_entry(&mut self, entry: &mut Entry<impl Read>) -> Result<(), ContextError> {
        match entry.header().entry_type() {
            EntryType::XGlobalHeader => drop(header_text(entry)?),
            EntryType::XHeader => self.read_pax(&header_text(entry)?)?,
            EntryType::GNULongName => self.path = Some(without_zeros(header_text(entry)?)),
            EntryType::GNULongLink => self.link = Some(without_zeros(header_text(entry)?)),
            kind => {
                let path = self.path.take();
                let path = path.unwrap_or_else(|| entry.path_bytes().into_owned());
                let link = self.link.take();
                let link = link.or_else(|| entry.link_name_bytes().map(Into::into));
                self.read_file(entry, kind, &path, &link.unwrap_or_default())?;
            }
        }
        Ok(())
    }

    fn read_pax(&mut self, text: &[u8]) -> Result<(), ContextError> {
        for extension in PaxExtensions::new(text) {
            let extension = extension?;
            match extension.key_bytes() {
                b"path" => self.path = Some(extension.value_bytes().to_vec()),
                b"linkpath" => self.link = Some(extension.value_bytes().to_vec()),
                // Only files above 8 GiB need it.
                b"size" => return Err(io::Error::from(io::ErrorKind::QuotaExceeded).into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        entry: &mut Entry<impl Read>,
        kind: EntryType,
        raw: &[u8],
        link: &[u8],
    ) -> Result<(), ContextError> {
        let path = normalize(raw).ok_or_else(|| ContextError::PathOutside(shown(raw)))?;
        let mode = entry.header().mode()? & 0o7777;
        let mut hash = Hasher::new(&SHA256);
        hash.update(&[kind.as_byte()]);
        hash.update(&mode.to_be_bytes());
        hash.update(&length(&path).to_be_bytes());
        hash.update(&path);
        let mut files = self.files.as_mut();
        let mut keep = |kind: EntryType, link: &[u8]| {
            let kept = files.as_mut();
            kept.map_or(Ok(()), |files| files.begin(&path, kind, mode, link))
        };
        match kind {
            EntryType::Directory => keep(kind, b"")?,
            EntryType::Regular | EntryType::Continuous if path == DOCKERFILE => {
                let text = self.read_dockerfile(entry)?;
                hash.update(text.as_bytes());
                self.dockerfile = Some(text);
            }
            EntryType::Regular | EntryType::Continuous => {
                keep(EntryType::Regular, b"")?;
                read_content(entry, &mut hash, files)?;
            }
            EntryType::Symlink => {
                let inside = resolve_link(&path, link);
                inside.ok_or_else(|| ContextError::LinkOutside(shown(raw)))?;
                hash.update(link);
                keep(kind, link)?;
            }
            EntryType::Link => {
                let target = normalize(link);
                let target = target.ok_or_else(|| ContextError::LinkOutside(shown(raw)))?;
                hash.update(link);
                keep(kind, &target)?;
            }
            _ => return Err(ContextError::SpecialFile(shown(raw))),
        }
        let mut entry = Hash::default();
        entry.copy_from_slice(hash.finish().as_ref());
        self.entries.push(entry);
        Ok(())
    }

    fn read_dockerfile(&self, entry: &mut Entry<impl Read>) -> Result<String, ContextError> {
        let max = MAX_DOCKERFILE_BYTES;
        if self.dockerfile.is_some() {
            return Err(ContextError::SecondDockerfile);
        }
        if entry.size() > max {
            return Err(ContextError::LongDockerfile { max });
        }
        let text = read_all(entry)?;
        String::from_utf8(text).map_err(|_| ContextError::BinaryDockerfile)
    }
}

/// Hashes a file, and keeps it. The library ends one early if the archive ends in it.
fn read_content(
    entry: &mut Entry<impl Read>,
    hash: &mut Hasher,
    mut files: Option<&mut ContextFiles>,
) -> Result<(), ContextError> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = entry.size();
    loop {
        match entry.read(&mut chunk)? {
            0 if left == 0 => return Ok(()),
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => {
                let chunk = &chunk[..count];
                hash.update(chunk);
                if let Some(files) = &mut files {
                    files.write(chunk)?;
                }
                left = left.saturating_sub(length(chunk));
            }
        }
    }
}

fn header_text(entry: &mut Entry<impl Read>) -> Result<Vec<u8>, ContextError> {
    let max = MAX_HEADER_BYTES;
    if entry.size() > max {
        return Err(ContextError::LongHeader { max });
    }
    Ok(read_all(entry)?)
}

/// Reads an entry whose size has been checked.
fn read_all(entry: &mut Entry<impl Read>) -> io::Result<Vec<u8>> {
    let (size, mut text) = (entry.size(), Vec::new());
    entry.take(size).read_to_end(&mut text)?;
    if length(&text) < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text)
}

pub(super) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn without_zeros(mut name: Vec<u8>) -> Vec<u8> {
    while name.last() == Some(&0) {
        name.pop();
    }
    name
}

fn shown(path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    path.chars().take(MAX_SHOWN_CHARS).collect()
}
