//! Files in `/dev/shm`, which ends with its Pod: saved processes may use them.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crds::contract::persistence::{PersistenceLevel, SaveLimits, StateAccess};

use crate::supervise::persistence::archive::{ArchiveFile, ArchiveRoot};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::mounts;
use crate::supervise::persistence::store::Store;

const DIRECTORY: &str = "/dev/shm";
/// Directory of the store of processes.
const FOLDER: &str = "shm";
/// Archive of a snapshot.
const SNAPSHOT: &str = "shared-files";

#[derive(Debug)]
pub(super) struct SharedFiles(ArchiveRoot);

impl SharedFiles {
    /// Lists the files that are there; `None` if the directory is a part of the root, which is kept
    /// anyway.
    pub(super) fn prepare(store: &Store) -> Result<Option<Self>, StateError> {
        let mounts = mounts::read().map_err(StateError::io("read the mounts"))?;
        let is_mounted = mounts
            .iter()
            .any(|mount| mount.point == DIRECTORY.as_bytes());
        if !is_mounted {
            return Ok(None);
        }
        Ok(Some(Self(archive(store, Vec::new())?)))
    }

    /// Saves the files that are new or have changed, in place of those of an earlier save.
    pub(super) fn save(&self, access: &StateAccess, limits: SaveLimits) -> Result<(), StateError> {
        if present().map_err(failed("read /dev/shm"))?.is_empty() {
            return self.discard();
        }
        self.0.save(access, limits).map(drop)
    }

    /// Copies the files that are new or have changed to a snapshot.
    pub(super) fn copy_to(
        &self,
        snapshot: &Store,
        access: &StateAccess,
        limits: SaveLimits,
        deadline: Deadline,
    ) -> Result<(), StateError> {
        if present().map_err(failed("read /dev/shm"))?.is_empty() {
            return Ok(());
        }
        let file = snapshot_file(snapshot, access);
        self.0.copy_to(file, limits, deadline).map(drop)
    }

    /// Restores files that the processes of a snapshot have had.
    pub(super) fn restore_copy(
        snapshot: &Store,
        access: &StateAccess,
        limits: SaveLimits,
    ) -> Result<(), StateError> {
        let present = present().map_err(failed("read /dev/shm"))?;
        // The directory itself may belong to the node.
        let present = present.iter().map(|path| &**path);
        let excluded: Vec<&Path> = present.chain([Path::new(DIRECTORY)]).collect();
        let file = snapshot_file(snapshot, access);
        let unpacked = file.unpack(limits, Path::new(DIRECTORY), &excluded);
        unpacked.map(drop)
    }

    /// Restores files that the processes have had. One that is there belongs to another container of
    /// the Pod and stays.
    pub(super) fn restore(
        &self,
        store: &Store,
        access: &StateAccess,
        limits: SaveLimits,
    ) -> Result<(), String> {
        if !self.0.has_state() {
            return Ok(());
        }
        let present = present().map_err(failed("read /dev/shm"));
        let archive = present.and_then(|present| archive(store, present));
        let archive = archive.map_err(|error| error.to_string())?;
        let restored = archive.restore(access, limits);
        match restored.reason {
            Some(reason) if restored.level < PersistenceLevel::Root => Err(reason),
            _ => Ok(()),
        }
    }

    pub(super) fn discard(&self) -> Result<(), StateError> {
        self.0.discard()
    }
}

fn snapshot_file<'a>(snapshot: &'a Store, access: &'a StateAccess) -> ArchiveFile<'a> {
    ArchiveFile {
        store: snapshot,
        name: SNAPSHOT,
        level: PersistenceLevel::Memory,
        access,
    }
}

fn archive(store: &Store, mut excluded: Vec<PathBuf>) -> Result<ArchiveRoot, StateError> {
    // The directory itself may belong to the node.
    excluded.push(DIRECTORY.into());
    let store = store.folder(FOLDER).map_err(failed("open the store"))?;
    let excluded: Vec<&Path> = excluded.iter().map(|path| &**path).collect();
    ArchiveRoot::prepare(store, Path::new(DIRECTORY), &excluded)
}

fn present() -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(DIRECTORY)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> StateError {
    StateError::io(action)
}
