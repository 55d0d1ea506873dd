//! Complete image of the store.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::lock::Lock;
use super::{ImageRecord, ImageStore, StoreError};
use crate::layer_view::LayerView;
use crate::{Digest, ImageConfig};

/// Image whose layers stay in the store while this value lives.
#[derive(Debug)]
pub struct Image {
    /// Digest of the manifest.
    pub digest: Digest,
    pub config: ImageConfig,
    /// Unpacked layers, topmost first.
    pub layers: Vec<PathBuf>,
    /// Bytes of the unpacked layers' files.
    pub bytes: u64,
    _in_use: Lock,
}

impl Image {
    pub(super) fn open(
        store: &ImageStore,
        record: &ImageRecord,
        in_use: Lock,
    ) -> Result<Self, StoreError> {
        let path = store.blob(&record.config);
        let text = fs::read(&path).map_err(StoreError::io(&path))?;
        let config =
            ImageConfig::parse(&text).map_err(|source| StoreError::Json { path, source })?;
        let chain_ids = record.chain_ids.iter().rev();
        Ok(Self {
            digest: record.manifest,
            config,
            layers: chain_ids.map(|id| store.layer(id)).collect(),
            bytes: record.unpacked_bytes,
            _in_use: in_use,
        })
    }

    /// Content of a regular file of the image, up to `limit` bytes. Links are followed inside the
    /// image; `NotFound` if there is no such file.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = fs::File::open(self.find(path)?)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut content = Vec::new();
        file.take(limit).read_to_end(&mut content)?;
        Ok(content)
    }

    /// Place of a path of the image on this machine, in the topmost layer that has it.
    pub fn find(&self, path: &Path) -> io::Result<PathBuf> {
        LayerView(&self.layers).find(path)
    }

    /// The path without links, inside the image. Its end need not exist.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        LayerView(&self.layers).resolve(path)
    }
}
