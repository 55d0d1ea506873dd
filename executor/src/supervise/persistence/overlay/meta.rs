//! File `meta.json` beside an upper directory: the image that it fits.

use std::io::{self, Write as _};

use crds::contract::persistence::PersistenceLevel;
use rustix::fd::BorrowedFd;
use rustix::fs::renameat;
use serde::{Deserialize, Serialize};

use crate::supervise::persistence::format;
use crate::supervise::persistence::store::{create_file, read_file, remove_file};

/// Version of the layout. A supervisor mounts uppers up to its own.
pub(super) const VERSION: u32 = 1;
const NAME: &str = "meta.json";
const TEMPORARY: &str = "meta.json.new";
const MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OverlayMeta {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) level: PersistenceLevel,
    /// Digest of the image below the upper directory.
    #[serde(default)]
    pub(super) image: String,
    /// Time of the last save or mount.
    #[serde(default)]
    pub(super) time: String,
}

impl OverlayMeta {
    pub(super) fn new(image: &str) -> Self {
        Self {
            version: VERSION,
            level: PersistenceLevel::Root,
            image: image.to_owned(),
            time: jiff::Timestamp::now().to_string(),
        }
    }

    /// Reads the file; `None` if there is none or it is not complete. Of a newer version nothing but
    /// the number is read.
    pub(super) fn read(directory: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let Some(content) = read_file(directory, NAME, MAX_BYTES)? else {
            return Ok(None);
        };
        Ok(match format::version(&content) {
            Some(version) if version > VERSION => Some(Self {
                version,
                ..Self::new("")
            }),
            _ => serde_json::from_slice(&content).ok(),
        })
    }

    /// Replaces the file durably.
    pub(super) fn write(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        remove_file(directory, TEMPORARY)?;
        let mut file = create_file(directory, TEMPORARY)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        renameat(directory, TEMPORARY, directory, NAME)?;
        Ok(rustix::fs::fsync(directory)?)
    }
}
