//! Changed files of a snapshot as a layer of an image.

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use crds::contract::persistence::{LayerRequest, PersistenceLevel, SaveLimits};

use super::ROOT;
use super::meta::SnapshotMeta;
use crate::supervise::persistence::Persistence;
use crate::supervise::persistence::archive::{LayerArchive, open_layer};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::store::{Store, open_directory};

/// Snapshots of the volume.
#[derive(Debug, Clone)]
pub(in crate::supervise) struct LayerSource {
    snapshots: Arc<Store>,
    limits: SaveLimits,
}

/// A layer that can be sent until a time limit.
#[derive(Debug)]
pub(in crate::supervise) struct Layer {
    archive: LayerArchive,
    deadline: Deadline,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::supervise) enum LayerError {
    #[error("the volume has no such snapshot")]
    Unknown,
    #[error("the snapshot has no changed files")]
    NoChanges,
    /// Text for users.
    #[error("{0}")]
    Unreadable(String),
}

impl Persistence {
    /// `None` if the Pod has no room for snapshots.
    pub(in crate::supervise) fn layers(&self) -> Option<LayerSource> {
        Some(LayerSource {
            snapshots: self.snapshots.clone()?,
            limits: self.pod.as_ref()?.limits,
        })
    }
}

impl LayerSource {
    /// Verifies the changed files of a complete snapshot.
    pub(in crate::supervise) fn open(&self, request: &LayerRequest) -> Result<Layer, LayerError> {
        let deadline = Deadline::after(self.limits.seconds);
        let folder = open_directory(self.snapshots.descriptor(), &request.id);
        let folder = folder.map_err(|error| match error.kind() {
            ErrorKind::NotFound => LayerError::Unknown,
            _ => StateError::io("open the snapshot")(error).into(),
        })?;
        let folder = Store::of(folder);
        let meta = SnapshotMeta::read(&folder, &request.id, &request.key)?;
        let meta = meta.ok_or(LayerError::Unknown)?;
        if meta.level < PersistenceLevel::Root {
            return Err(LayerError::NoChanges);
        }
        let archive = open_layer(&folder, ROOT, &request.key, self.limits, deadline)?;
        Ok(Layer {
            archive: archive.ok_or(LayerError::NoChanges)?,
            deadline,
        })
    }
}

impl Layer {
    pub(in crate::supervise) fn bytes(&self) -> u64 {
        self.archive.bytes()
    }

    /// Writes the layer until the limit.
    pub(in crate::supervise) fn write(self, to: impl Write) -> Result<(), LayerError> {
        Ok(self.archive.write(to, self.deadline)?)
    }
}

impl From<StateError> for LayerError {
    fn from(error: StateError) -> Self {
        Self::Unreadable(error.to_string())
    }
}
