//! Key of a sandbox's archives.

use std::fmt;

use ring::hkdf::{HKDF_SHA256, Salt};

use super::cipher::ChunkCipher;

/// Secret of 32 random bytes; each archive gets a key of its own from it.
#[derive(Clone)]
pub struct ArchiveKey([u8; 32]);

impl ArchiveKey {
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Key of one archive. The context is part of it: another one opens nothing.
    pub(super) fn derive(&self, salt: &[u8], context: &[u8]) -> Option<ChunkCipher> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let info = [b"sandbox memory archive 1".as_slice(), context];
        let key = secret.expand(&info, ChunkCipher::algorithm()).ok()?;
        Some(ChunkCipher::new(key.into()))
    }
}

impl fmt::Debug for ArchiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArchiveKey(…)")
    }
}
