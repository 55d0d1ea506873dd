//! Writes an archive beside its final path, and renames it once it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::OFlags;

use super::cipher::{Algorithm, ChunkCipher, ChunkPosition};
use super::key::ArchiveKey;
use super::manifest::{ArchiveIndex, ImageEntry, Manifest};
use super::output::Output;
use super::{HEADER_BYTES, SALT_BYTES};
use crate::error::FailureReason;

/// Number of images in one archive, a bound against a broken sender.
const MAX_IMAGES: usize = 1 << 20;
/// Longest name of an image; CRIU's have at most 40 characters.
const MAX_NAME_BYTES: usize = 255;

pub(crate) struct ArchiveWriter {
    file: File,
    /// Writes the chunks, until the archive is complete.
    output: Option<Output>,
    path: PathBuf,
    partial: PathBuf,
    cipher: ChunkCipher,
    offset: u64,
    image_bytes: u64,
    max_bytes: u64,
    images: Vec<ImageEntry>,
    chunk_bytes: Vec<u32>,
    is_in_place: bool,
}

impl ArchiveWriter {
    /// Creates the file. With `flush` it is written to the disk while it grows.
    pub(crate) fn create(
        path: &Path,
        algorithm: Algorithm,
        key: &ArchiveKey,
        context: &[u8],
        max_bytes: u64,
        flush: bool,
    ) -> Result<Self, FailureReason> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new()
            .fill(&mut salt)
            .map_err(|_| io::Error::other("cannot read random bytes"))?;
        let cipher = key
            .derive(algorithm, &salt, context)
            .ok_or_else(|| io::Error::other("cannot derive a key"))?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&partial)?;
        file.write_all(algorithm.magic())?;
        file.write_all(&salt)?;
        let output = file
            .try_clone()
            .and_then(|file| Output::start(file, flush))
            .inspect_err(|_| {
                let _ = fs::remove_file(&partial);
            })?;
        Ok(Self {
            file,
            output: Some(output),
            path: path.to_owned(),
            partial,
            cipher,
            offset: HEADER_BYTES,
            image_bytes: 0,
            max_bytes,
            images: Vec::new(),
            chunk_bytes: Vec::new(),
            is_in_place: false,
        })
    }

    /// Adds an empty image and returns its number.
    pub(crate) fn add_image(&mut self, name: String) -> Result<usize, FailureReason> {
        if self.images.len() >= MAX_IMAGES || name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(FailureReason::Protocol);
        }
        self.images.push(ImageEntry {
            name,
            chunks: Vec::new(),
        });
        Ok(self.images.len() - 1)
    }

    /// Appends data to an image, and leaves the buffer empty.
    pub(crate) fn append(&mut self, image: usize, data: &mut Vec<u8>) -> Result<(), FailureReason> {
        let number = self.chunk_bytes.len();
        let (Ok(chunk), Ok(bytes)) = (u32::try_from(number), u32::try_from(data.len())) else {
            return Err(FailureReason::SizeLimit(self.max_bytes));
        };
        self.image_bytes += u64::from(bytes);
        if self.image_bytes > self.max_bytes {
            return Err(FailureReason::SizeLimit(self.max_bytes));
        }
        let entry = self.images.get_mut(image).ok_or(FailureReason::Protocol)?;
        entry.chunks.push(chunk);
        self.chunk_bytes.push(bytes);
        Ok(self.write_sealed(ChunkPosition::Data(u64::from(chunk)), data)?)
    }

    pub(crate) fn image_bytes(&self) -> u64 {
        self.image_bytes
    }

    /// Writes the index. With `sync` the content reaches the disk.
    pub(crate) fn complete(
        &mut self,
        manifest: Manifest,
        sync: bool,
    ) -> Result<u64, FailureReason> {
        let start = self.offset;
        let mut index = serde_json::to_vec(&ArchiveIndex {
            manifest,
            images: std::mem::take(&mut self.images),
            chunk_bytes: std::mem::take(&mut self.chunk_bytes),
        })
        .map_err(io::Error::from)?;
        self.write_sealed(ChunkPosition::Index, &mut index)?;
        if let Some(output) = self.output.take() {
            output.finish()?;
        }
        self.file.write_all(&start.to_be_bytes())?;
        if sync {
            self.file.sync_data()?;
        }
        Ok(self.offset + 8)
    }

    /// Puts the complete archive at its path.
    pub(crate) fn put_in_place(&mut self, sync: bool) -> io::Result<()> {
        fs::rename(&self.partial, &self.path)?;
        self.is_in_place = true;
        if sync && let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes the archive, complete or not.
    pub(crate) fn discard(self) {
        // Chunks that it still has would let the file grow again.
        let _ = self.output.map(Output::stop);
        let path = if self.is_in_place {
            &self.path
        } else {
            &self.partial
        };
        // A flush that has begun keeps the file open: after a full disk its blocks are needed.
        let _ = self.file.set_len(0);
        // A partial file that stays is replaced by the next dump.
        let _ = fs::remove_file(path);
    }

    fn write_sealed(&mut self, position: ChunkPosition, data: &mut Vec<u8>) -> io::Result<()> {
        self.cipher
            .seal(position, data)
            .ok_or_else(|| io::Error::other("cannot encrypt a chunk"))?;
        self.offset += data.len() as u64;
        let output = self.output.as_mut();
        output
            .ok_or_else(|| io::Error::other("the archive is complete"))?
            .write(data)
    }
}
