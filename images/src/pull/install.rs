//! Download of the layers that a store lacks, and their unpacking.

use futures::stream::{self, StreamExt as _};
use tokio::sync::{mpsc, watch};

use super::{Inner, MAX_DOWNLOADS, PullError, blocking};
use crate::install::{LayerToUnpack, layers, record, unpack_layer};
use crate::manifest::MAX_LAYERS;
use crate::store::{ImageRecord, ImageStore};
use crate::{Credentials, Descriptor, Digest, ImageConfig, ImageManifest, Progress, Reference};

pub(super) struct Install<'a> {
    pub(super) inner: &'a Inner,
    pub(super) reference: &'a Reference,
    pub(super) credentials: &'a Credentials,
    pub(super) progress: watch::Sender<Progress>,
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
        Ok(record(manifest_digest, manifest, config, unpacked_bytes))
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
