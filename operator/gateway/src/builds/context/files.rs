//! Files of a build context, on disk from the upload until the image is made.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};

use tar::EntryType;

use super::ContextError;

/// Bytes of all paths and link targets, which are kept in memory.
const MAX_PATH_BYTES: usize = 8 << 20;

/// Files of one context. Their content is in a file without a name, which ends with the process.
#[derive(Debug)]
pub(crate) struct ContextFiles {
    content: File,
    entries: Vec<ContextEntry>,
    written: u64,
    path_bytes: usize,
}

#[derive(Debug)]
pub(crate) struct ContextEntry {
    /// In normal form.
    pub(crate) path: Vec<u8>,
    /// Directory, regular file, symbolic or hard link.
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    /// Target of a symbolic link as it was sent, path of a hard link in normal form.
    pub(crate) link: Vec<u8>,
    pub(crate) size: u64,
    offset: u64,
}

impl ContextFiles {
    pub(super) fn create() -> Result<Self, ContextError> {
        Ok(Self {
            content: tempfile::tempfile().map_err(ContextError::Disk)?,
            entries: Vec::new(),
            written: 0,
            path_bytes: 0,
        })
    }

    /// Begins an entry, whose content follows in calls of [`Self::write`].
    pub(super) fn begin(
        &mut self,
        path: &[u8],
        kind: EntryType,
        mode: u32,
        link: &[u8],
    ) -> Result<(), ContextError> {
        self.path_bytes += path.len() + link.len();
        if self.path_bytes > MAX_PATH_BYTES {
            let max = MAX_PATH_BYTES;
            return Err(ContextError::LongPaths { max });
        }
        self.entries.push(ContextEntry {
            path: path.to_vec(),
            kind,
            mode,
            link: link.to_vec(),
            size: 0,
            offset: self.written,
        });
        Ok(())
    }

    pub(super) fn write(&mut self, chunk: &[u8]) -> Result<(), ContextError> {
        self.content.write_all(chunk).map_err(ContextError::Disk)?;
        let bytes = super::archive::length(chunk);
        self.written += bytes;
        if let Some(entry) = self.entries.last_mut() {
            entry.size += bytes;
        }
        Ok(())
    }

    pub(crate) fn entries(&self) -> &[ContextEntry] {
        &self.entries
    }

    /// Reads the content of a file from its beginning. One file is read at a time.
    pub(crate) fn open(&self, entry: &ContextEntry) -> io::Result<impl Read> {
        let mut content = &self.content;
        content.seek(SeekFrom::Start(entry.offset))?;
        Ok(content.take(entry.size))
    }
}
