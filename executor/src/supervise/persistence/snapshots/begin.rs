//! First start of a sandbox that begins with a snapshot. Later ones have their own state.

use std::path::Path;

use crds::contract::control::Init;
use crds::contract::path::SNAPSHOT_DIR;
use crds::contract::persistence::{
    KeptState, PersistenceLevel, RootMechanism, SaveLimits, SnapshotSource,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use tokio::task::spawn_blocking;

use super::meta::SnapshotMeta;
use super::take::session_key;
use super::{PROCESSES, ROOT, WORKSPACE, access};
use crate::supervise::persistence::archive::ArchiveFile;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::store::{Store, open_directory};
use crate::supervise::persistence::{
    Persistence, RootState, bounded, image_change, joined, memory,
};

/// Marks a volume that has the files of the snapshot.
const BEGUN: &str = "begun";

/// Snapshot that this container begins with.
#[derive(Debug)]
pub(in crate::supervise::persistence) struct PendingSnapshot {
    snapshot: Store,
    /// Directory for the mark.
    own: Store,
    processes: Option<Store>,
}

/// State of a sandbox that begins with a snapshot.
#[derive(Debug)]
pub(in crate::supervise) struct Begun {
    pub(in crate::supervise) restored: KeptState,
    /// Root of the processes that go on, and the session key that they check.
    pub(in crate::supervise) processes: Option<(Pid, Option<String>)>,
}

impl PendingSnapshot {
    /// Opens the snapshot of the Pod. `None` if it has none, or the volume has its files already.
    pub(in crate::supervise::persistence) fn open(store: &Path) -> Option<Self> {
        let own = Store::open(store).ok()?;
        if own.has(BEGUN) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let snapshot = Store::of(rustix::fs::open(SNAPSHOT_DIR, flags, Mode::empty()).ok()?);
        let processes = open_directory(snapshot.descriptor(), PROCESSES).ok();
        let processes = processes.map(Store::of).filter(memory::has_copy);
        Some(Self {
            snapshot,
            own,
            processes,
        })
    }

    /// Returns whether the volume has the files of a snapshot.
    pub(in crate::supervise::persistence) fn has_begun(store: &Path) -> bool {
        Store::open(store).is_ok_and(|own| own.has(BEGUN))
    }

    pub(in crate::supervise::persistence) fn has_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Unpacks the files. `root` is the reason why those outside of the workspace are left out.
    fn unpack(
        &self,
        source: &SnapshotSource,
        image: &str,
        limits: SaveLimits,
        root: Option<String>,
    ) -> Result<(SnapshotMeta, KeptState), StateError> {
        let meta = SnapshotMeta::read(&self.snapshot, &source.id, &source.key)?;
        let meta = meta.ok_or(StateError::Damaged("the snapshot is not complete"))?;
        let access = access(&source.key, &meta.image);
        let unpack = |name, level, to: &Path| {
            let file = ArchiveFile {
                store: &self.snapshot,
                name,
                level,
                access: &access,
            };
            file.unpack(limits, to, &[])
        };
        let (own, workspace) = (PersistenceLevel::Workspace, Path::new(&source.workspace));
        let workspace = unpack(WORKSPACE, own, workspace).map_err(StateError::of_workspace)?;
        let workspace = workspace.ok_or(StateError::Damaged("the workspace is missing"))?;
        let mut restored = KeptState {
            reason: workspace.reason,
            ..KeptState::of(PersistenceLevel::Workspace)
        };
        if meta.level >= PersistenceLevel::Root {
            let obstacle = root.or_else(|| {
                let fits = !image.is_empty() && meta.image == image;
                (!fits).then(|| image_change(&meta.image, image))
            });
            let reason = if let Some(obstacle) = obstacle {
                Some(obstacle)
            } else {
                let root = unpack(ROOT, PersistenceLevel::Root, Path::new("/"))?;
                restored.level = PersistenceLevel::Root;
                root.ok_or(StateError::Damaged("the changed files are missing"))?
                    .reason
            };
            restored.reason = reason
                .map(|reason| joined(reason, restored.reason.clone()))
                .or(restored.reason);
        }
        Ok((meta, restored))
    }

    /// Marks the volume once it has the files, before anything runs that changes them.
    fn mark(&self) -> Result<(), StateError> {
        let synced = rustix::fs::syncfs(self.own.descriptor());
        synced.map_err(StateError::io("write the files to the volume"))?;
        let marked = self
            .own
            .create(BEGUN)
            .and_then(|file| file.sync_all())
            .and_then(|()| self.own.sync());
        marked.map_err(StateError::io("mark the volume"))
    }
}

impl Persistence {
    /// Takes over the files of the snapshot that the sandbox begins with, and its processes if they
    /// can go on. `None` if it has none, or has begun before.
    pub(in crate::supervise) async fn begin(
        &mut self,
        init: &Init,
    ) -> Result<Option<Begun>, String> {
        self.try_begin(init)
            .await
            .map_err(|error| error.to_string())
    }

    async fn try_begin(&mut self, init: &Init) -> Result<Option<Begun>, StateError> {
        let source = init.state.as_ref().and_then(|state| state.source.clone());
        let Some(source) = source else {
            return Ok(None);
        };
        let pending = match (self.pending.take(), &self.pod) {
            (Some(pending), Some(_)) => pending,
            (None, Some(_)) if self.has_begun => return Ok(None),
            _ => return Err(StateError::NoSnapshot),
        };
        let limits = self.pod.as_ref().map(|pod| pod.limits);
        let limits = limits.ok_or(StateError::NoSnapshot)?;
        let obstacle = self.root_obstacle();
        let unpacking = {
            let (source, access) = (source.clone(), self.access.clone());
            let archive = match &self.root {
                RootState::Archive(archive) => Some(archive.clone()),
                _ => None,
            };
            spawn_blocking(move || {
                let unpacked = pending.unpack(&source, &access.image, limits, obstacle)?;
                // The snapshot is read once: from now on the sandbox has an archive of its own.
                if let Some(archive) = archive {
                    archive.save(&access, limits)?;
                }
                pending.mark()?;
                Ok::<_, StateError>((pending, unpacked))
            })
        };
        let unpacked = unpacking
            .await
            .map_err(StateError::io("unpack the snapshot"))?;
        let (pending, (meta, mut restored)) = unpacked?;
        self.has_begun = true;
        let processes = self.begin_processes(pending, &source, &meta, init, &restored);
        let processes = match processes.await {
            Ok(processes) => processes,
            Err(reason) => {
                let reason = format!("processes did not go on: {reason}");
                restored.reason = Some(joined(reason, restored.reason));
                None
            }
        };
        if processes.is_some() {
            restored.level = PersistenceLevel::Memory;
        }
        restored.reason = restored.reason.map(bounded);
        Ok(Some(Begun {
            restored,
            processes,
        }))
    }

    /// Reason for which changed files outside of the workspace are not kept in this Pod.
    fn root_obstacle(&self) -> Option<String> {
        let RootState::Unmanaged(kept) = &self.root else {
            return None;
        };
        let is_of_node = self.pod.as_ref().map(|pod| pod.root) == Some(RootMechanism::Node);
        if is_of_node && kept.reason.is_none() {
            return None;
        }
        let reason = kept.reason.clone();
        Some(reason.unwrap_or_else(|| "files outside of the workspace are not kept".to_owned()))
    }

    async fn begin_processes(
        &mut self,
        pending: PendingSnapshot,
        source: &SnapshotSource,
        meta: &SnapshotMeta,
        init: &Init,
        restored: &KeptState,
    ) -> Result<Option<(Pid, Option<String>)>, String> {
        if meta.level < PersistenceLevel::Memory {
            return Ok(None);
        }
        // Less was asked for.
        let Some(state) = &mut self.processes else {
            return Ok(None);
        };
        state.init = Some(init.clone());
        if restored.level < PersistenceLevel::Root {
            return Err("the files that they use were not restored".to_owned());
        }
        let store = state.store.clone()?;
        let snapshot = pending.processes.ok_or("they are missing")?;
        let key = meta.session_key.clone();
        if key.is_none() && session_key(init).is_some() {
            return Err("their server has no session key that could be replaced".to_owned());
        }
        let access = access(&source.key, &self.access.image);
        let init = init.clone();
        let restoring = spawn_blocking(move || store.restore_copy(&snapshot, &access, &init));
        match restoring.await {
            Ok(Ok(root)) => Ok(Some((root, key))),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
