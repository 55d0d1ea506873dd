//! Encryption of an archive in chunks. The key is derived for each archive; nonces count the chunks
//! and mark the last one, so that chunks cannot be changed, exchanged, cut off or appended.

use std::io::{self, ErrorKind, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::header::ArchiveHeader;
use crate::supervise::persistence::error::StateError;

/// Bytes of a chunk in clear. The last one is shorter, and may be empty.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
const TAG_BYTES: usize = 16;
const CONTEXT: &[u8] = b"sandbox-root-archive-v1";

/// Key of the sandbox.
pub(super) struct StateKey([u8; 32]);

impl StateKey {
    pub(super) fn from_text(text: &str) -> Result<Self, StateError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| StateError::Key)?;
        Ok(Self(bytes.try_into().map_err(|_| StateError::Key)?))
    }

    /// Key of one archive.
    fn derive(&self, header: &ArchiveHeader) -> Result<LessSafeKey, StateError> {
        let material = Salt::new(HKDF_SHA256, &header.salt).extract(&self.0);
        let key = material.expand(&[CONTEXT], &CHACHA20_POLY1305);
        let key = key.map_err(|_| StateError::Key)?;
        Ok(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// Cipher of the chunks in their order.
struct Cipher {
    key: LessSafeKey,
    binding: [u8; 32],
    count: u64,
}

impl Cipher {
    fn new(key: &StateKey, header: &ArchiveHeader) -> Result<Self, StateError> {
        Ok(Self {
            key: key.derive(header)?,
            binding: header.binding(),
            count: 0,
        })
    }

    fn nonce(&mut self, is_last: bool) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[3..11].copy_from_slice(&self.count.to_be_bytes());
        nonce[11] = u8::from(is_last);
        self.count += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Writer that encrypts.
pub(super) struct Sealer<W> {
    to: W,
    cipher: Cipher,
    chunk: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    /// Writes the header.
    pub(super) fn new(
        mut to: W,
        key: &StateKey,
        header: &ArchiveHeader,
    ) -> Result<Self, StateError> {
        let written = to.write_all(&header.to_bytes());
        written.map_err(StateError::io("write the archive"))?;
        Ok(Self {
            to,
            cipher: Cipher::new(key, header)?,
            chunk: Vec::with_capacity(CHUNK_BYTES + TAG_BYTES),
        })
    }

    /// Writes the last chunk.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = self.cipher.nonce(is_last);
        let binding = Aad::from(self.cipher.binding);
        let key = &self.cipher.key;
        let sealed = key.seal_in_place_append_tag(nonce, binding, &mut self.chunk);
        sealed.map_err(|_| io::Error::other("encryption failed"))?;
        self.to.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..count]);
        if self.chunk.len() == CHUNK_BYTES {
            self.seal(false)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A chunk that is not full would be the last one.
        Ok(())
    }
}

/// Reader that decrypts. It returns no byte that is not authentic; the end of the content is
/// reported after the last chunk only.
pub(super) struct Opener<R> {
    from: R,
    cipher: Cipher,
    chunk: Vec<u8>,
    /// Bytes of the chunk that are decrypted, and those of them that were read.
    filled: usize,
    read: usize,
    is_last: bool,
}

impl<R: Read> Opener<R> {
    /// Reads what follows the header.
    pub(super) fn new(from: R, key: &StateKey, header: &ArchiveHeader) -> Result<Self, StateError> {
        Ok(Self {
            from,
            cipher: Cipher::new(key, header)?,
            chunk: vec![0; CHUNK_BYTES + TAG_BYTES],
            filled: 0,
            read: 0,
            is_last: false,
        })
    }

    fn open(&mut self) -> io::Result<()> {
        let mut length = 0;
        while length < self.chunk.len() {
            match self.from.read(&mut self.chunk[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.is_last = length < self.chunk.len();
        let nonce = self.cipher.nonce(self.is_last);
        let binding = Aad::from(self.cipher.binding);
        let chunk = &mut self.chunk[..length];
        let opened = self.cipher.key.open_in_place(nonce, binding, chunk);
        // No details: they could only help a forger.
        let opened = opened.map_err(|_| io::Error::from(ErrorKind::InvalidData))?;
        self.filled = opened.len();
        self.read = 0;
        Ok(())
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.filled {
            if self.is_last {
                return Ok(0);
            }
            self.open()?;
        }
        let available = &self.chunk[self.read..self.filled];
        let count = available.len().min(buffer.len());
        buffer[..count].copy_from_slice(&available[..count]);
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use crds::contract::persistence::PersistenceLevel;

    use super::super::header::{SALT_BYTES, VERSION};
    use super::*;

    const KEY: StateKey = StateKey([3; 32]);

    fn header() -> ArchiveHeader {
        ArchiveHeader {
            version: VERSION,
            level: PersistenceLevel::Root,
            image: "sha256:1".into(),
            salt: [9; SALT_BYTES],
        }
    }

    fn sealed(content: &[u8]) -> Vec<u8> {
        let mut sealer = Sealer::new(Vec::new(), &KEY, &header()).unwrap();
        sealer.write_all(content).unwrap();
        sealer.finish().unwrap()
    }

    fn opened(archive: &[u8], key: &StateKey) -> Result<Vec<u8>, ()> {
        let mut from = archive;
        let header = ArchiveHeader::read(&mut from).map_err(drop)?;
        let mut opener = Opener::new(from, key, &header).map_err(drop)?;
        let mut content = Vec::new();
        opener.read_to_end(&mut content).map_err(drop)?;
        Ok(content)
    }

    #[test]
    fn content_of_any_length_round_trips() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 5] {
            let content: Vec<u8> = (0..=250).cycle().take(length).collect();
            assert!(opened(&sealed(&content), &KEY) == Ok(content), "{length}");
        }
    }

    #[test]
    fn every_kind_of_change_is_refused() {
        let content = vec![5; 3 * CHUNK_BYTES + 7];
        let archive = sealed(&content);
        let start = header().to_bytes().len();
        let whole = CHUNK_BYTES + TAG_BYTES;
        assert_eq!(archive.len(), start + 3 * whole + 7 + TAG_BYTES);
        // One byte of the header, of each chunk and of the tags.
        let chunks = (start..archive.len()).step_by(whole / 3);
        for at in (0..start).chain(chunks).chain([archive.len() - 1]) {
            let mut changed = archive.clone();
            changed[at] ^= 1;
            assert_eq!(opened(&changed, &KEY), Err(()), "byte {at}");
        }
        // Ends at any boundary, and in between.
        for chunk in 0..=3 {
            for length in [0, 1, TAG_BYTES, whole - 1] {
                let end = (start + chunk * whole + length).min(archive.len() - 1);
                assert_eq!(opened(&archive[..end], &KEY), Err(()), "end {end}");
            }
        }
        let (one, other) = (start..start + whole, start + whole..start + 2 * whole);
        let swapped = [
            &archive[..start],
            &archive[other.clone()],
            &archive[one.clone()],
            &archive[other.end..],
        ];
        assert_eq!(opened(&swapped.concat(), &KEY), Err(()));
        let removed = [&archive[..one.start], &archive[one.end..]].concat();
        assert_eq!(opened(&removed, &KEY), Err(()));
        for extra in [&b"x"[..], &archive[start..start + whole], &archive] {
            assert_eq!(opened(&[&archive, extra].concat(), &KEY), Err(()));
        }
        assert_eq!(opened(&archive, &StateKey([4; 32])), Err(()));
        assert!(opened(&archive, &KEY) == Ok(content));
    }

    #[test]
    fn key_must_be_32_bytes() {
        for text in ["", "AAAA", "not base64!"] {
            assert!(StateKey::from_text(text).is_err());
        }
        let text = URL_SAFE_NO_PAD.encode([1; 32]);
        assert!(StateKey::from_text(&text).is_ok());
    }
}
