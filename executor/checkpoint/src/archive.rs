//! One file with all images of a saved tree, encrypted in chunks.
//!
//! Layout: magic (8 bytes), salt (32), sealed chunks, sealed index, offset of the index (8, big
//! endian). A chunk is at most 1 MiB of one image. Each is sealed with AES-256-GCM or
//! ChaCha20-Poly1305, which the magic tells, under a key derived from the sandbox's key, the salt
//! and the context. The nonce has the number of the chunk and tells the index apart, so chunks
//! cannot be swapped, repeated or left out.

pub(crate) mod cipher;
mod flusher;
pub(crate) mod key;
pub(crate) mod manifest;
mod output;
pub(crate) mod reader;
pub(crate) mod writer;

const MAGIC_BYTES: usize = 8;
const SALT_BYTES: usize = 32;
const HEADER_BYTES: u64 = 40;
const TRAILER_BYTES: u64 = 8;
pub(crate) const MAX_CHUNK_BYTES: usize = 1 << 20;
/// Bound of the sealed index: 64 GiB in chunks of 1 MiB take less than 1 MiB.
const MAX_INDEX_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests;
