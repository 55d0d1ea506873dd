//! Unpacking of one layer: in a staging directory, under a lock, and trusted only with its record,
//! which follows when the files are on disk.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::{ImageStore, StoreError, record};
use crate::{Digest, remove_tree};

/// Record of a complete layer, beside its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct LayerRecord {
    /// Bytes of its files.
    bytes: u64,
}

/// Right to unpack a layer.
#[derive(Debug)]
pub(crate) struct LayerLock {
    store: ImageStore,
    chain_id: Digest,
    bytes: Option<u64>,
    is_complete: bool,
    _lock: Lock,
}

impl ImageStore {
    /// Waits while another task or process unpacks this layer.
    pub(crate) fn lock_layer(&self, chain_id: Digest) -> Result<LayerLock, StoreError> {
        let lock = self.staging().join(format!("{}.lock", chain_id.short()));
        let lock = Lock::exclusive(&lock)?;
        let record: Option<LayerRecord> = record::read(&self.layer_record(&chain_id))?;
        Ok(LayerLock {
            store: self.clone(),
            bytes: record.map(|record| record.bytes),
            is_complete: record.is_some() && self.layer(&chain_id).is_dir(),
            chain_id,
            _lock: lock,
        })
    }

    fn layer_record(&self, chain_id: &Digest) -> PathBuf {
        self.layer(chain_id).with_extension("json")
    }

    /// Writes the records of layers that are unpacked, after one flush of all their files.
    pub(crate) fn complete_layers(&self, locks: &[LayerLock]) -> Result<(), StoreError> {
        let new = || locks.iter().filter(|lock| !lock.is_complete);
        if new().next().is_some() {
            let path = self.layers();
            let flush = || Ok(rustix::fs::syncfs(File::open(&path)?)?);
            flush().map_err(StoreError::io(&path))?;
        }
        for lock in new() {
            let record = LayerRecord {
                bytes: lock.bytes(),
            };
            let path = self.layer_record(&lock.chain_id);
            record::write(&path, &self.staging(), &record)?;
        }
        Ok(())
    }
}

impl LayerLock {
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.unwrap_or_default()
    }

    /// Empty directory to unpack into.
    pub(crate) fn staged(&self) -> Result<PathBuf, StoreError> {
        let path = self.staging_path();
        self.discard();
        let create = fs::DirBuilder::new().mode(0o755).create(&path);
        create.map_err(StoreError::io(&path))?;
        Ok(path)
    }

    /// Gives the unpacked directory its name.
    pub(crate) fn unpacked(&mut self, bytes: u64) -> Result<(), StoreError> {
        let (staged, path) = (self.staging_path(), self.store.layer(&self.chain_id));
        let rename = || {
            // One without a record is of unknown content.
            match remove_tree(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(&staged, &path)
        };
        rename().map_err(StoreError::io(&path))?;
        self.bytes = Some(bytes);
        Ok(())
    }

    /// Removes what is unpacked so far.
    pub(crate) fn discard(&self) {
        let _ = remove_tree(&self.staging_path());
    }

    fn staging_path(&self) -> PathBuf {
        self.store.staging().join(self.chain_id.short())
    }
}
