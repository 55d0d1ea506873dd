//! Processes that go on: those of the last save, once, or those of a snapshot, which stays.

use std::io;
use std::time::Duration;

use checkpoint::{ArchiveKey, Manifest, PipeDirection, RestoreOptions, read_manifest};
use crds::contract::control::Init;
use crds::contract::persistence::StateAccess;
use rustix::fd::OwnedFd;
use rustix::process::Pid;

use super::meta::{self, MemoryMeta};
use super::shared_files::SharedFiles;
use super::{
    ARCHIVE, MAX_META_BYTES, META, MemoryError, MemoryStore, USED, current, failed, log, mark,
    reserve, secret,
};
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::store::{Store, read_file};

/// Processes that a restore lets go on.
#[derive(Clone, Copy)]
struct Source<'a> {
    folder: &'a Store,
    access: &'a StateAccess,
    init: &'a Init,
    /// It stays as it is.
    is_snapshot: bool,
}

impl MemoryStore {
    /// Lets the saved processes go on, and returns their root, a child of this process, and their id.
    /// Without their files, and after an error, nothing of them runs, now or later. `None` if there are
    /// neither files nor processes.
    pub(in crate::supervise::persistence) fn restore(
        &self,
        access: &StateAccess,
        init: &Init,
        has_files: bool,
    ) -> Result<Option<(Pid, String)>, MemoryError> {
        let source = Source {
            folder: &self.folder,
            access,
            init,
            is_snapshot: false,
        };
        let restored = match self.newer {
            Some(version) => Err(MemoryError::Newer(version)),
            None if !has_files && self.has_archive() => Err(MemoryError::Files),
            None if !has_files => Ok(None),
            None if self.folder.has(USED) => Err(MemoryError::Used),
            None => self.restore_once(source).map(Some),
        };
        self.discard_or_log();
        restored
    }

    /// Lets the processes of a snapshot go on, which stays as it is.
    pub(in crate::supervise::persistence) fn restore_copy(
        &self,
        snapshot: &Store,
        access: &StateAccess,
        init: &Init,
    ) -> Result<Pid, MemoryError> {
        let source = Source {
            folder: snapshot,
            access,
            init: &meta::without_sandbox(init),
            is_snapshot: true,
        };
        self.restore_once(source).map(|(root, _)| root)
    }

    fn restore_once(&self, source: Source<'_>) -> Result<(Pid, String), MemoryError> {
        let Source {
            folder,
            access,
            init,
            is_snapshot,
        } = source;
        let context = read_file(folder.descriptor(), META, MAX_META_BYTES);
        let context = context.map_err(failed("read the saved processes"))?;
        let context = context.ok_or(MemoryError::Missing)?;
        let meta: MemoryMeta = serde_json::from_slice(&context)
            .map_err(|_| StateError::Damaged("meta.json is not valid"))?;
        let secret = secret(&access.key)?;
        let now = current(access, init, &secret, meta.id.clone())?;
        if let Some(obstacle) = meta.obstacle(&now) {
            return Err(MemoryError::Obstacle(obstacle));
        }
        let (archive, key) = (folder.path(ARCHIVE), ArchiveKey::new(secret));
        let manifest = read_manifest(&archive, &key, &context)?;
        if let Some(files) = &self.shared_files {
            let restored = if is_snapshot {
                SharedFiles::restore_copy(folder, access, self.limits).map_err(|e| e.to_string())
            } else {
                files.restore(folder, access, self.limits)
            };
            restored.map_err(MemoryError::Obstacle)?;
        }
        let options = RestoreOptions {
            key: &key,
            context: &context,
            limits: self.limits(Duration::from_secs(self.limits.seconds)),
            descriptors: descriptors(&manifest).map_err(failed("pass on the log"))?,
            approve: &mut |manifest| {
                if !is_snapshot {
                    self.use_up().map_err(|error| error.to_string())?;
                }
                reserve(manifest.highest_pid.unsigned_abs());
                Ok(())
            },
        };
        let restored = self.criu.restore(&archive, options).inspect_err(log)?;
        if let Some(error) = &restored.failed_attempt {
            log(error);
        }
        tracing::debug!(time = ?restored.duration, "processes restored");
        let root = Pid::from_raw(restored.pid).ok_or(MemoryError::Missing)?;
        Ok((root, meta.id))
    }

    /// Ends the use of the archive, before the first instruction of its processes.
    fn use_up(&self) -> io::Result<()> {
        mark(&self.folder)?;
        self.folder.remove(ARCHIVE)?;
        self.folder.sync()
    }
}

/// Streams of this container for the pipes of the tree to the container's log.
fn descriptors(manifest: &Manifest) -> io::Result<Vec<(String, OwnedFd)>> {
    let pipes = manifest.outside_pipes.iter();
    let replaced = pipes.map(|pipe| {
        let descriptor = match (pipe.direction, pipe.descriptor) {
            (PipeDirection::In, _) => io::pipe()?.0.into(),
            (PipeDirection::Out, 2) => rustix::io::dup(rustix::stdio::stderr())?,
            (PipeDirection::Out, _) => rustix::io::dup(rustix::stdio::stdout())?,
        };
        Ok((pipe.name.clone(), descriptor))
    });
    replaced.collect()
}
