//! Reads an archive. Every byte is authenticated before it is used.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::cipher::{Algorithm, ChunkCipher, ChunkPosition};
use super::key::ArchiveKey;
use super::manifest::{ArchiveIndex, Manifest};
use super::{
    HEADER_BYTES, MAGIC_BYTES, MAX_CHUNK_BYTES, MAX_INDEX_BYTES, SALT_BYTES, TRAILER_BYTES,
};
use crate::error::{CheckpointError, FailureReason};

const TRUNCATED: FailureReason = FailureReason::ArchiveInvalid("the file is truncated");
const NOT_AUTHENTIC: FailureReason =
    FailureReason::ArchiveInvalid("wrong key, other sandbox, or the file was changed");

/// Reads what an archive says about its tree.
pub fn read_manifest(
    archive: &Path,
    key: &ArchiveKey,
    context: &[u8],
) -> Result<Manifest, CheckpointError> {
    Ok(ArchiveReader::open(archive, key, context)?.manifest)
}

pub(crate) struct ArchiveReader {
    file: File,
    cipher: ChunkCipher,
    pub(crate) manifest: Manifest,
    images: HashMap<String, Vec<u32>>,
    /// Offset and sealed size of each chunk.
    chunks: Vec<(u64, usize)>,
}

impl ArchiveReader {
    pub(crate) fn open(
        path: &Path,
        key: &ArchiveKey,
        context: &[u8],
    ) -> Result<Self, FailureReason> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path)?;
        let size = file.metadata()?.len();
        let Some(end) = size
            .checked_sub(TRAILER_BYTES)
            .filter(|end| *end > HEADER_BYTES)
        else {
            return Err(TRUNCATED);
        };
        let mut header = [0; MAGIC_BYTES + SALT_BYTES];
        file.read_exact_at(&mut header, 0)?;
        let (magic, salt) = header.split_at(MAGIC_BYTES);
        let Some(algorithm) = Algorithm::of_magic(magic) else {
            return Err(FailureReason::ArchiveInvalid(
                "not an archive of this version",
            ));
        };
        let mut trailer = [0; 8];
        file.read_exact_at(&mut trailer, end)?;
        let start = u64::from_be_bytes(trailer);
        let sealed = end.checked_sub(start).filter(|_| start >= HEADER_BYTES);
        let Some(sealed) = sealed.filter(|sealed| *sealed <= MAX_INDEX_BYTES) else {
            return Err(TRUNCATED);
        };
        let cipher = key.derive(algorithm, salt, context);
        let cipher = cipher.ok_or(NOT_AUTHENTIC)?;
        let mut index = vec![0; usize::try_from(sealed).map_err(|_| TRUNCATED)?];
        file.read_exact_at(&mut index, start)?;
        let index = open_index(&cipher, index)?;
        let chunks = chunk_places(&index.chunk_bytes, cipher.tag_bytes(), start)?;
        let images = index.images.into_iter();
        Ok(Self {
            file,
            cipher,
            manifest: index.manifest,
            images: images.map(|image| (image.name, image.chunks)).collect(),
            chunks,
        })
    }

    /// Numbers of the chunks of an image, if the archive has it.
    pub(crate) fn image(&self, name: &str) -> Option<&[u32]> {
        self.images.get(name).map(Vec::as_slice)
    }

    /// Replaces the content of the buffer by that of a chunk.
    pub(crate) fn read_chunk(
        &self,
        number: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FailureReason> {
        let place = usize::try_from(number).ok();
        let (offset, sealed) = place
            .and_then(|place| self.chunks.get(place))
            .ok_or(NOT_AUTHENTIC)?;
        buffer.resize(*sealed, 0);
        self.file.read_exact_at(buffer, *offset)?;
        self.cipher
            .open(ChunkPosition::Data(number.into()), buffer)
            .ok_or(NOT_AUTHENTIC)
    }
}

fn open_index(cipher: &ChunkCipher, mut index: Vec<u8>) -> Result<ArchiveIndex, FailureReason> {
    cipher
        .open(ChunkPosition::Index, &mut index)
        .ok_or(NOT_AUTHENTIC)?;
    serde_json::from_slice(&index).map_err(|_| FailureReason::ArchiveInvalid("unknown index"))
}

/// Offsets of the chunks, which fill the space between header and index.
fn chunk_places(
    chunk_bytes: &[u32],
    tag_bytes: usize,
    end: u64,
) -> Result<Vec<(u64, usize)>, FailureReason> {
    let mut offset = HEADER_BYTES;
    let mut places = Vec::with_capacity(chunk_bytes.len());
    for bytes in chunk_bytes {
        let bytes = usize::try_from(*bytes).map_err(|_| TRUNCATED)?;
        if bytes > MAX_CHUNK_BYTES {
            return Err(FailureReason::ArchiveInvalid("a chunk is too large"));
        }
        let sealed = bytes + tag_bytes;
        places.push((offset, sealed));
        offset += sealed as u64;
    }
    if offset == end {
        Ok(places)
    } else {
        Err(TRUNCATED)
    }
}
