//! Lists, uploads and downloads. They wait neither for commands nor for each other. Their number is
//! limited so that threads remain for actions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;

use super::{ExecuteError, Executor};
use crate::serve::files;
use crate::serve::transfer::{self, TransferError, Upload, UploadReader};

impl Executor {
    /// Lists the names in a directory; a relative path is joined to the initial working directory.
    pub(in crate::serve) async fn list(
        &self,
        path: Option<String>,
    ) -> Result<Vec<String>, ExecuteError> {
        let path = self
            .launch_context
            .working_dir
            .join(path.unwrap_or_default());
        self.run_as_user(move || files::list(&path)).await
    }

    pub(in crate::serve) async fn upload(
        &self,
        upload: Upload,
        received: UploadReader,
    ) -> Result<(), TransferError> {
        let _slot = Arc::clone(&self.transfers).acquire_owned().await;
        let _running = self.activity.begin();
        let stored = self
            .launch_context
            .identity
            .run(move || transfer::store(&upload, received));
        stored.await.map_err(TransferError::Identity)?
    }

    /// Sends an archive of a directory, which is created while it is sent.
    pub(in crate::serve) async fn download(
        self: &Arc<Self>,
        path: PathBuf,
    ) -> Result<Body, TransferError> {
        let slot = Arc::clone(&self.transfers).acquire_owned().await;
        let identity = &self.launch_context.identity;
        let root = path.clone();
        let exists = identity.run(move || Path::exists(&root)).await;
        if !exists.map_err(TransferError::Identity)? {
            return Err(TransferError::Missing);
        }
        let (download, sink) = transfer::channel();
        let executor = Arc::clone(self);
        // Ends with the archive, or when its reader disconnects or stalls.
        tokio::spawn(async move {
            let _slot = slot;
            let _running = executor.activity.begin();
            let sent = executor
                .launch_context
                .identity
                .run(move || transfer::send(&path, sink));
            if let Err(error) = sent.await.and_then(|sent: io::Result<()>| sent) {
                tracing::warn!(%error, "download aborted");
            }
        });
        Ok(download)
    }
}
