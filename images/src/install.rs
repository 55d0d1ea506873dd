//! Assembly of an image in a store from blobs that are there: layers are unpacked bottom first, and
//! a record makes the image complete.

use std::fs::{self, File};
use std::io;

use crate::manifest::ManifestError;
use crate::store::{ImageRecord, ImageStore, LayerLock, StoreError};
use crate::unpack::{Limits, UnpackError, UnpackedLayer, unpack};
use crate::{Digest, ImageConfig, ImageManifest};

/// Blobs do not make an image.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("configuration of the image is not valid: {0}")]
    Config(serde_json::Error),
    #[error("image has {layers} layers, but its configuration names {diff_ids}")]
    LayerCount { layers: usize, diff_ids: usize },
    #[error("layer {0}: {1}")]
    Unpack(Digest, UnpackError),
    #[error("layer {layer} contains {found}, the configuration of the image says {expected}")]
    DiffId {
        layer: Digest,
        expected: Digest,
        found: Digest,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One layer to unpack.
#[derive(Debug)]
pub(crate) struct LayerToUnpack {
    pub(crate) blob: Digest,
    diff_id: Digest,
    chain_id: Digest,
    /// Chain ids of the layers below, topmost first.
    parents: Vec<Digest>,
}

/// Record of an image whose layers are unpacked.
pub(crate) fn record(
    digest: Digest,
    manifest: &ImageManifest,
    config: &ImageConfig,
    unpacked_bytes: u64,
) -> ImageRecord {
    ImageRecord {
        manifest: digest,
        config: manifest.config.digest,
        layers: manifest.layers.clone(),
        chain_ids: config.chain_ids(),
        unpacked_bytes,
    }
}

/// Layers with the digests that they must have when unpacked.
pub(crate) fn layers(
    manifest: &ImageManifest,
    config: &ImageConfig,
) -> Result<Vec<LayerToUnpack>, InstallError> {
    let diff_ids = &config.rootfs.diff_ids;
    if manifest.layers.len() != diff_ids.len() {
        return Err(InstallError::LayerCount {
            layers: manifest.layers.len(),
            diff_ids: diff_ids.len(),
        });
    }
    let chain_ids = config.chain_ids();
    let layers = manifest.layers.iter().zip(diff_ids).enumerate();
    let layers = layers.map(|(number, (layer, diff_id))| LayerToUnpack {
        blob: layer.digest,
        diff_id: *diff_id,
        chain_id: chain_ids[number],
        parents: chain_ids[..number].iter().rev().copied().collect(),
    });
    Ok(layers.collect())
}

/// Unpacks a layer, unless the store has it. Only the holder of its lock does that.
pub(crate) fn unpack_layer(
    store: &ImageStore,
    layer: &LayerToUnpack,
    limits: &Limits,
) -> Result<LayerLock, InstallError> {
    let mut lock = store.lock_layer(layer.chain_id)?;
    if lock.is_complete() {
        return Ok(lock);
    }
    let blob = store.blob(&layer.blob);
    let unpacked = unpack_blob(store, layer, &lock, limits);
    match unpacked {
        Ok(unpacked) => {
            lock.unpacked(unpacked.bytes)?;
            Ok(lock)
        }
        Err(error) => {
            lock.discard();
            // Refused content is not tried again from the same file.
            let _ = fs::remove_file(blob);
            Err(error)
        }
    }
}

fn unpack_blob(
    store: &ImageStore,
    layer: &LayerToUnpack,
    lock: &LayerLock,
    limits: &Limits,
) -> Result<UnpackedLayer, InstallError> {
    let blob = store.blob(&layer.blob);
    let failed = |error: io::Error| StoreError::io(&blob)(error);
    let file = File::open(&blob).map_err(failed)?;
    let parents: Vec<_> = layer.parents.iter().map(|id| store.layer(id)).collect();
    let directory = lock.staged()?;
    let unpacked = unpack(file, &directory, &parents, limits)
        .map_err(|error| InstallError::Unpack(layer.blob, error))?;
    if unpacked.diff_id != layer.diff_id {
        return Err(InstallError::DiffId {
            layer: layer.blob,
            expected: layer.diff_id,
            found: unpacked.diff_id,
        });
    }
    Ok(unpacked)
}
