//! Key of a sandbox's archives.

use std::fmt;

use ring::hkdf::{HKDF_SHA256, Salt};

use super::cipher::{Algorithm, ChunkCipher};

/// Secret of 32 random bytes; each archive gets a key of its own from it.
#[derive(Clone)]
pub struct ArchiveKey([u8; 32]);

impl ArchiveKey {
    pub fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Key of one archive. The context is part of it: another one opens nothing.
    pub(super) fn derive(
        &self,
        algorithm: Algorithm,
        salt: &[u8],
        context: &[u8],
    ) -> Option<ChunkCipher> {
        let secret = Salt::new(HKDF_SHA256, salt).extract(&self.0);
        let info = [algorithm.purpose(), context];
        let key = secret.expand(&info, algorithm.aead()).ok()?;
        Some(ChunkCipher::new(key.into()))
    }
}

impl fmt::Debug for ArchiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ArchiveKey(…)")
    }
}
