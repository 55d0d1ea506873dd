//! Download and unpacking of the layers that a store lacks.

use std::fs::{self, File};
use std::io;

use futures::stream::{self, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::{Inner, MAX_DOWNLOADS, PullError, blocking};
use crate::manifest::MAX_LAYERS;
use crate::store::{ImageRecord, ImageStore, LayerLock, StoreError};
use crate::unpack::{Limits, UnpackedLayer, unpack};
use crate::{Credentials, Descriptor, Digest, ImageConfig, ImageManifest, Progress, Reference};

pub(super) struct Install<'a> {
    pub(super) inner: &'a Inner,
    pub(super) reference: &'a Reference,
    pub(super) credentials: &'a Credentials,
    pub(super) progress: watch::Sender<Progress>,
}

/// One layer to unpack.
#[derive(Debug)]
struct LayerToUnpack {
    blob: Digest,
    diff_id: Digest,
    chain_id: Digest,
    /// Chain ids of the layers below, topmost first.
    parents: Vec<Digest>,
}

impl Install<'_> {
    /// Adds the layers to the store; the record of the image, which its caller adds.
    pub(super) async fn run(
        &self,
        manifest_digest: Digest,
        manifest: &ImageManifest,
        config: &ImageConfig,
    ) -> Result<ImageRecord, PullError> {
        let layers = layers(manifest, config)?;
        let chain_ids = layers.iter().map(|layer| layer.chain_id).collect();
        self.progress.send_replace(Progress {
            total: manifest.layers.iter().map(|layer| layer.size).sum(),
            layers: layers.len(),
            ..Progress::default()
        });
        // Has room for all, so that downloads never wait for an unpacking.
        let (sender, downloaded) = mpsc::channel(MAX_LAYERS + 1);
        let downloads: Vec<_> = manifest.layers.iter().map(|l| self.download(l)).collect();
        let mut downloads = stream::iter(downloads).buffered(MAX_DOWNLOADS);
        let downloading = async {
            while let Some(done) = downloads.next().await {
                // Nothing receives after a failed unpacking.
                let _ = sender.send(done).await;
            }
            Ok(())
        };
        let unpacking = self.unpack(layers, downloaded);
        let (unpacked_bytes, ()) = tokio::try_join!(unpacking, downloading)?;
        Ok(ImageRecord {
            manifest: manifest_digest,
            config: manifest.config.digest,
            layers: manifest.layers.clone(),
            chain_ids,
            unpacked_bytes,
        })
    }

    /// Unpacks the layers in order, each after its download; bytes of all.
    async fn unpack(
        &self,
        layers: Vec<LayerToUnpack>,
        mut downloaded: mpsc::Receiver<Result<(), PullError>>,
    ) -> Result<u64, PullError> {
        let (mut locks, mut bytes) = (Vec::new(), 0);
        for layer in layers {
            downloaded.recv().await.ok_or(PullError::Interrupted)??;
            let limits = self.inner.limits;
            let unpack = move |store: &ImageStore| unpack_layer(store, &layer, &limits);
            let locked = blocking(&self.inner.store, unpack).await??;
            bytes += locked.bytes();
            locks.push(locked);
            self.progress.send_modify(|progress| progress.unpacked += 1);
        }
        let complete = move |store: &ImageStore| store.complete_layers(&locks);
        blocking(&self.inner.store, complete).await??;
        Ok(bytes)
    }

    /// Downloads a layer, unless the store has its blob.
    async fn download(&self, layer: &Descriptor) -> Result<(), PullError> {
        let path = self.inner.store.blob(&layer.digest);
        let add = |bytes| {
            self.progress
                .send_modify(|progress| progress.downloaded += bytes);
        };
        if path.exists() {
            add(layer.size);
            return Ok(());
        }
        // The semaphore is never closed.
        let _permit = self.inner.downloads.acquire().await;
        let registry = &self.inner.registry;
        let done = registry.download(self.reference, layer, self.credentials, &path, &add);
        Ok(done.await?)
    }
}

/// Layers with the digests that they must have when unpacked.
fn layers(manifest: &ImageManifest, config: &ImageConfig) -> Result<Vec<LayerToUnpack>, PullError> {
    let diff_ids = &config.rootfs.diff_ids;
    if manifest.layers.len() != diff_ids.len() {
        return Err(PullError::LayerCount {
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
fn unpack_layer(
    store: &ImageStore,
    layer: &LayerToUnpack,
    limits: &Limits,
) -> Result<LayerLock, PullError> {
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
) -> Result<UnpackedLayer, PullError> {
    let blob = store.blob(&layer.blob);
    let failed = |error: io::Error| StoreError::io(&blob)(error);
    let file = File::open(&blob).map_err(failed)?;
    let parents: Vec<_> = layer.parents.iter().map(|id| store.layer(id)).collect();
    let directory = lock.staged()?;
    let unpacked = unpack(file, &directory, &parents, limits)
        .map_err(|error| PullError::Unpack(layer.blob, error))?;
    if unpacked.diff_id != layer.diff_id {
        return Err(PullError::DiffId {
            layer: layer.blob,
            expected: layer.diff_id,
            found: unpacked.diff_id,
        });
    }
    Ok(unpacked)
}
