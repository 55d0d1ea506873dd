//! Clear text in front of an encrypted archive. Each chunk is bound to it.

use std::io::Read;

use crds::contract::persistence::PersistenceLevel;
use ring::digest::{SHA256, digest};

use crate::supervise::persistence::error::StateError;

const MAGIC: [u8; 8] = *b"SBXROOT\n";
/// Version of the format. A supervisor reads archives up to its own.
pub(super) const VERSION: u32 = 1;
const MAX_IMAGE_BYTES: usize = 1024;
pub(super) const SALT_BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ArchiveHeader {
    pub(super) version: u32,
    pub(super) level: PersistenceLevel,
    /// Digest of the image that the archive fits.
    pub(super) image: String,
    /// Random value that makes the key of this archive.
    pub(super) salt: [u8; SALT_BYTES],
}

impl ArchiveHeader {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let length = self.image.floor_char_boundary(MAX_IMAGE_BYTES);
        let image = &self.image.as_bytes()[..length];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_be_bytes());
        bytes.push(match self.level {
            PersistenceLevel::Workspace => 0,
            PersistenceLevel::Root => 1,
            PersistenceLevel::Memory => 2,
        });
        bytes.extend(u16::try_from(length).unwrap_or_default().to_be_bytes());
        bytes.extend(image);
        bytes.extend(self.salt);
        bytes
    }

    /// Reads a header. Of a newer version nothing but the number is read.
    pub(super) fn read(from: &mut impl Read) -> Result<Self, StateError> {
        if read::<8>(from)? != MAGIC {
            return Err(StateError::Damaged("it is not an archive"));
        }
        let version = u32::from_be_bytes(read(from)?);
        if version > VERSION {
            return Err(StateError::Version(version));
        }
        let level = match read(from)? {
            [0] => PersistenceLevel::Workspace,
            [1] => PersistenceLevel::Root,
            [2] => PersistenceLevel::Memory,
            _ => return Err(StateError::Damaged("its level is unknown")),
        };
        let length = usize::from(u16::from_be_bytes(read(from)?));
        if length > MAX_IMAGE_BYTES {
            return Err(StateError::Damaged("its header is too long"));
        }
        let mut image = vec![0; length];
        from.read_exact(&mut image)
            .map_err(StateError::io("read the archive"))?;
        let image = String::from_utf8(image);
        Ok(Self {
            version,
            level,
            image: image.map_err(|_| StateError::Damaged("its image is not text"))?,
            salt: read(from)?,
        })
    }

    /// Associated data of each chunk.
    pub(super) fn binding(&self) -> [u8; 32] {
        let mut binding = [0; 32];
        binding.copy_from_slice(digest(&SHA256, &self.to_bytes()).as_ref());
        binding
    }
}

fn read<const N: usize>(from: &mut impl Read) -> Result<[u8; N], StateError> {
    let mut bytes = [0; N];
    let filled = from.read_exact(&mut bytes);
    filled.map_err(|_| StateError::Damaged("it ends in its header"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trips_and_refuses_newer_versions() {
        let header = ArchiveHeader {
            version: VERSION,
            level: PersistenceLevel::Root,
            image: "sha256:1".into(),
            salt: [7; SALT_BYTES],
        };
        let bytes = header.to_bytes();
        assert_eq!(ArchiveHeader::read(&mut &bytes[..]).unwrap(), header);
        for end in 0..bytes.len() {
            assert!(ArchiveHeader::read(&mut &bytes[..end]).is_err());
        }
        let newer = ArchiveHeader {
            version: VERSION + 1,
            ..header
        };
        let error = ArchiveHeader::read(&mut &newer.to_bytes()[..]).unwrap_err();
        assert!(matches!(error, StateError::Version(2)));
    }
}
