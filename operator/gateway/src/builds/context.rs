//! Build contexts: base64 text of a compressed tar archive. They are read as a stream. The
//! Dockerfile and a digest of the rest are kept, and the files if an image is to be made of them.

mod archive;
mod files;
mod path;

use std::io::{self, Read};

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use flate2::read::GzDecoder;

use archive::Archive;

pub(super) use files::{ContextEntry, ContextFiles};

const LIMITS: Limits = Limits {
    bytes: 512 << 20,
    entries: 100_000,
};
/// Limits of a context whose files are kept on disk.
const KEPT_LIMITS: Limits = Limits {
    bytes: 128 << 20,
    ..LIMITS
};

/// Size of the largest archive.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes after decompression.
    bytes: u64,
    entries: usize,
}

/// The parts of a build context that count.
#[derive(Debug)]
pub(super) struct BuildContext {
    pub(super) dockerfile: String,
    /// Digest of paths, modes and contents in any order, `sha256:` and 64 digits.
    pub(super) digest: String,
    /// All entries but the Dockerfile, if they are kept.
    pub(super) files: Option<ContextFiles>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    #[error("it is not base64 text of a compressed tar archive: {0}")]
    Malformed(io::Error),
    #[error("it exceeds {} MiB after decompression", max >> 20)]
    TooLarge { max: u64 },
    #[error("it has more than {max} entries")]
    ManyEntries { max: usize },
    #[error("a header of an entry exceeds {max} bytes")]
    LongHeader { max: u64 },
    #[error("its paths exceed {max} bytes")]
    LongPaths { max: usize },
    #[error("the path {0:?} leads out of it")]
    PathOutside(String),
    #[error("the link {0:?} leads out of it")]
    LinkOutside(String),
    #[error("{0:?} is not a file, directory or link")]
    SpecialFile(String),
    #[error("it has no Dockerfile")]
    NoDockerfile,
    #[error("it has more than one Dockerfile")]
    SecondDockerfile,
    #[error("the Dockerfile exceeds {max} bytes")]
    LongDockerfile { max: u64 },
    #[error("the Dockerfile is not UTF-8 text")]
    BinaryDockerfile,
    #[error("its files cannot be kept: {0}")]
    Disk(io::Error),
}

impl From<io::Error> for ContextError {
    fn from(error: io::Error) -> Self {
        Self::Malformed(error)
    }
}

/// Reads a context to its end.
pub(super) fn read(base64: impl Read, keep_files: bool) -> Result<BuildContext, ContextError> {
    let files = keep_files.then(ContextFiles::create).transpose()?;
    let limits = if keep_files { KEPT_LIMITS } else { LIMITS };
    read_limited(base64, limits, files)
}

fn read_limited(
    base64: impl Read,
    limits: Limits,
    files: Option<ContextFiles>,
) -> Result<BuildContext, ContextError> {
    let compressed = DecoderReader::new(base64, &STANDARD);
    let mut plain = Limited {
        inner: GzDecoder::new(compressed),
        left: limits.bytes,
    };
    let read = |plain: &mut Limited<_>| {
        let context = Archive::new(files).read(&mut *plain, limits.entries)?;
        // The checksum is at the end.
        io::copy(plain, &mut io::sink())?;
        Ok(context)
    };
    read(&mut plain).map_err(|error| match error {
        ContextError::Malformed(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            ContextError::TooLarge { max: limits.bytes }
        }
        error => error,
    })
}

/// Reader that fails after a number of bytes, with [`io::ErrorKind::QuotaExceeded`].
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(count)
    }
}

#[cfg(test)]
pub(super) mod tests;
