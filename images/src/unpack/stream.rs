//! Decompression and hashing, on a thread of its own, ahead of the one that writes files.

use std::io::{self, BufReader, Cursor, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;

use super::UnpackError;
use crate::{Digest, Hasher};

/// Bytes of one piece of the content, and pieces that wait to be written.
const PIECE: usize = 256 << 10;
const WAITING: usize = 16;

/// A larger archive is refused if it has grown by this factor: no layer of files does.
const BOMB_BYTES: u64 = 1 << 30;
const BOMB_FACTOR: u64 = 500;

/// Uncompressed content of a layer.
#[derive(Debug)]
pub(super) struct Content {
    pieces: Receiver<Result<Vec<u8>, UnpackError>>,
    piece: Vec<u8>,
    at: usize,
}

/// Runs `unpack` on the content of `layer`; its result, and the digest of the whole content.
pub(super) fn with_decompressed<T>(
    layer: impl Read + Send,
    unpack: impl FnOnce(Content) -> Result<T, UnpackError>,
) -> Result<(T, Digest), UnpackError> {
    let (sender, pieces) = sync_channel(WAITING);
    thread::scope(|scope| {
        let reading = scope.spawn(move || read(layer, &sender));
        let content = Content {
            pieces,
            piece: Vec::new(),
            at: 0,
        };
        // Drops the content, which ends the reading after an error.
        let unpacked = unpack(content);
        let digest = reading.join();
        let digest = digest.map_err(|_| UnpackError::Format("cannot be decompressed"))?;
        Ok((unpacked?, digest.ok_or(UnpackError::Truncated)?))
    })
}

type Pieces = SyncSender<Result<Vec<u8>, UnpackError>>;

/// Sends the decompressed pieces; the digest of all. `None` after an error, which is sent too.
fn read(layer: impl Read, pieces: &Pieces) -> Option<Digest> {
    match send_all(layer, pieces) {
        Ok(digest) => digest,
        Err(error) => {
            let _ = pieces.send(Err(error));
            None
        }
    }
}

/// The digest of the whole content; `None` if nothing receives the rest.
fn send_all(layer: impl Read, pieces: &Pieces) -> Result<Option<Digest>, UnpackError> {
    let compressed = AtomicU64::new(0);
    let mut content = decompressed(layer, &compressed).map_err(UnpackError::Read)?;
    let (mut hasher, mut written) = (Hasher::default(), 0);
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let mut next = content.by_ref().take(PIECE as u64);
        if next.read_to_end(&mut piece).map_err(UnpackError::Read)? == 0 {
            return Ok(Some(hasher.finish()));
        }
        hasher.update(&piece);
        written += piece.len() as u64;
        let read = compressed.load(Ordering::Relaxed);
        if written > BOMB_BYTES && written / BOMB_FACTOR > read {
            return Err(UnpackError::Bomb { read, written });
        }
        if pieces.send(Ok(piece)).is_err() {
            return Ok(None);
        }
    }
}

/// Chooses the decompression by the first bytes; media types are often wrong.
fn decompressed<'a>(
    mut layer: impl Read + 'a,
    compressed: &'a AtomicU64,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::with_capacity(4);
    layer.by_ref().take(4).read_to_end(&mut first)?;
    let magic: [u8; 4] = first.as_slice().try_into().unwrap_or_default();
    let layer = Cursor::new(first).chain(layer);
    let counted = BufReader::with_capacity(PIECE, Counted { layer, compressed });
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(counted)),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            Box::new(zstd::Decoder::with_buffer(counted)?)
        }
        _ => Box::new(counted),
    })
}

struct Counted<'a, R> {
    layer: R,
    compressed: &'a AtomicU64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.layer.read(buffer)?;
        self.compressed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Content {
    /// The next bytes, at most `limit`; empty at the end.
    pub(super) fn next(&mut self, limit: u64) -> Result<&[u8], UnpackError> {
        while self.at == self.piece.len() {
            match self.pieces.recv() {
                Ok(piece) => (self.piece, self.at) = (piece?, 0),
                Err(_) => return Ok(&[]),
            }
        }
        let left = self.piece.len() - self.at;
        let taken = usize::try_from(limit).map_or(left, |limit| left.min(limit));
        let bytes = &self.piece[self.at..self.at + taken];
        self.at += taken;
        Ok(bytes)
    }
}
