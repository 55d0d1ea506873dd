//! Files that come and go as wholes: lists, uploads, downloads. No actions, so that they wait
//! neither for commands nor for each other, up to a number that leaves threads for actions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ExecuteError, Executor};
use crate::serve::files;
use crate::serve::transfer::{self, Download, Received, TransferError, Upload};

/// Uploads and downloads at once: each has a thread for as long as its client takes.
pub(super) const MAX_TRANSFERS: usize = 8;

impl Executor {
    /// The names in a directory; a relative one is in the initial working directory.
    pub(in crate::serve) async fn list(
        &self,
        path: Option<String>,
    ) -> Result<Vec<String>, ExecuteError> {
        let path = self.start.working_dir.join(path.unwrap_or_default());
        self.as_user(move || files::list(&path)).await
    }

    /// Stores what a client sends.
    pub(in crate::serve) async fn upload(
        &self,
        upload: Upload,
        received: Received,
    ) -> Result<(), TransferError> {
        let _slot = Arc::clone(&self.transfers).acquire_owned().await;
        let _running = self.activity.begin();
        let stored = self
            .start
            .identity
            .run(move || transfer::store(&upload, received));
        stored.await.map_err(TransferError::Identity)?
    }

    /// Sends an archive of a directory. The archive is made while it is sent.
    pub(in crate::serve) async fn download(
        self: &Arc<Self>,
        path: PathBuf,
    ) -> Result<Download, TransferError> {
        let slot = Arc::clone(&self.transfers).acquire_owned().await;
        let identity = &self.start.identity;
        let looked_at = path.clone();
        let exists = identity.run(move || Path::exists(&looked_at)).await;
        if !exists.map_err(TransferError::Identity)? {
            return Err(TransferError::Missing);
        }
        let (download, sink) = transfer::channel();
        let executor = Arc::clone(self);
        // Ends with the archive, or when its reader is gone or does not read.
        tokio::spawn(async move {
            let _slot = slot;
            let _running = executor.activity.begin();
            let sent = executor
                .start
                .identity
                .run(move || transfer::send(&path, sink));
            if let Err(error) = sent.await.and_then(|sent: io::Result<()>| sent) {
                tracing::warn!(%error, "a download broke off");
            }
        });
        Ok(download)
    }
}
