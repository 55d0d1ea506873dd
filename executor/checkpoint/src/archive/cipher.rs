//! Seals and opens the chunks of one archive.

use ring::aead::{
    self, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey,
};

/// Cipher of an archive, which its first bytes name. Every supervisor reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    ChaCha20Poly1305,
    Aes256Gcm,
}

impl Algorithm {
    pub(super) const ALL: [Self; 2] = [Self::ChaCha20Poly1305, Self::Aes256Gcm];

    /// AES where the CPU has instructions for it: a third of the time there, and a multiple
    /// elsewhere.
    pub(crate) fn fastest() -> Self {
        if has_aes_instructions() {
            Self::Aes256Gcm
        } else {
            Self::ChaCha20Poly1305
        }
    }

    pub(super) fn of_magic(magic: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.magic() == magic)
    }

    /// First bytes of an archive.
    pub(super) fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::ChaCha20Poly1305 => b"SBXMEM01",
            Self::Aes256Gcm => b"SBXMEM02",
        }
    }

    /// Use of a key, so that no key serves both.
    pub(super) fn purpose(self) -> &'static [u8] {
        match self {
            Self::ChaCha20Poly1305 => b"sandbox memory archive 1",
            Self::Aes256Gcm => b"sandbox memory archive 2",
        }
    }

    pub(super) fn aead(self) -> &'static aead::Algorithm {
        match self {
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Self::Aes256Gcm => &AES_256_GCM,
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn has_aes_instructions() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

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
    pub(super) fn new(key: UnboundKey) -> Self {
        Self(LessSafeKey::new(key))
    }

    /// Bytes that sealing adds.
    pub(super) fn tag_bytes(&self) -> usize {
        self.0.algorithm().tag_len()
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
