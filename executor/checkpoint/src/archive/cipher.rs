//! Seals and opens the chunks of one archive.

use ring::aead::{Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Position of a chunk, which makes its nonce. No position is sealed twice under one key.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChunkPosition {
    Data(u64),
    /// The one index, which lists all data chunks.
    Index,
}

impl ChunkPosition {
    fn to_nonce(self) -> Nonce {
        let (last, number) = match self {
            Self::Data(number) => (0, number),
            Self::Index => (1, 0),
        };
        let mut nonce = [0; NONCE_LEN];
        nonce[0] = last;
        nonce[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

pub(crate) struct ChunkCipher(LessSafeKey);

impl ChunkCipher {
    pub(super) fn algorithm() -> &'static Algorithm {
        &CHACHA20_POLY1305
    }

    pub(super) fn new(key: UnboundKey) -> Self {
        Self(LessSafeKey::new(key))
    }

    /// Encrypts in place and appends the tag; `None` if the data is beyond the algorithm's limit.
    pub(super) fn seal(&self, position: ChunkPosition, data: &mut Vec<u8>) -> Option<()> {
        self.0
            .seal_in_place_append_tag(position.to_nonce(), Aad::empty(), data)
            .ok()
    }

    /// Decrypts in place and cuts the tag off; `None` if the chunk is not the one sealed there.
    pub(super) fn open(&self, position: ChunkPosition, data: &mut Vec<u8>) -> Option<()> {
        let length = self
            .0
            .open_in_place(position.to_nonce(), Aad::empty(), data)
            .ok()?
            .len();
        data.truncate(length);
        Some(())
    }
}
