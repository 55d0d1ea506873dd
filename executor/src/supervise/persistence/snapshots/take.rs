//! Copy of the state of a command that goes on.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crds::contract::control::Init;
use crds::contract::persistence::{
    KeptState, PersistenceLevel, SaveLimits, SnapshotReport, SnapshotRequest, StateAccess,
};
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::meta::SnapshotMeta;
use super::{PROCESSES, ROOT, WORKSPACE, access};
use crate::supervise::executor_calls::{self, is_executor};
use crate::supervise::persistence::archive::{ArchiveFile, ArchiveRoot};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::memory::MemoryStore;
use crate::supervise::persistence::store::Store;
use crate::supervise::persistence::{HANG_GRACE, Persistence, RootState, bounded, joined};

/// Ends the copy that is being made.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Has the copy end soon that is being made, if there is one: it fails.
pub(in crate::supervise) fn interrupt() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// One copy.
struct Copy {
    request: SnapshotRequest,
    snapshots: Arc<Store>,
    access: StateAccess,
    limits: SaveLimits,
    /// Root of the tree, and its init message.
    root: Pid,
    init: Option<Init>,
    changes: Changes,
    /// The processes are copied as well, or the reason why not.
    processes: Option<Result<Arc<MemoryStore>, String>>,
}

/// Source of the changed files outside of the workspace.
enum Changes {
    /// Reason for which they are left out.
    None(Option<String>),
    Upper(OwnedFd),
    Archive(Arc<ArchiveRoot>),
}

impl Persistence {
    /// Copies the state of the command whose tree begins at `root`. `address` is that of its port.
    pub(in crate::supervise) async fn take_snapshot(
        &self,
        root: Pid,
        request: SnapshotRequest,
        address: IpAddr,
    ) -> SnapshotReport {
        // One that hangs goes on unattended, and no other may begin meanwhile.
        let Ok(permit) = self.copying.clone().try_acquire_owned() else {
            return failed("an earlier copy has not ended");
        };
        INTERRUPTED.store(false, Ordering::Relaxed);
        let copy = match self.copy(root, request) {
            Ok(copy) => copy,
            Err(error) => return failed(&error.to_string()),
        };
        if let (Some(Ok(_)), Some(init)) = (&copy.processes, &copy.init)
            && let Err(error) = executor_calls::prepare_save(address, init).await
        {
            tracing::warn!(%error, "the executor is not prepared for the snapshot");
        }
        if INTERRUPTED.load(Ordering::Relaxed) {
            return failed(&StateError::Interrupted.to_string());
        }
        let limit = Duration::from_secs(copy.limits.seconds).saturating_add(HANG_GRACE);
        let copying = spawn_blocking(move || {
            let _permit = permit;
            copy.take()
        });
        match timeout(limit, copying).await {
            Ok(Ok(Ok(kept))) => SnapshotReport {
                kept: Some(KeptState {
                    reason: kept.reason.map(bounded),
                    ..kept
                }),
                error: None,
            },
            Ok(Ok(Err(error))) => failed(&error.to_string()),
            Ok(Err(error)) => failed(&error.to_string()),
            Err(_) => failed(&StateError::Time(limit.as_secs()).to_string()),
        }
    }

    fn copy(&self, root: Pid, request: SnapshotRequest) -> Result<Copy, StateError> {
        let (Some(pod), Some(snapshots)) = (&self.pod, &self.snapshots) else {
            return Err(StateError::NoStore);
        };
        let level = request.level.min(pod.level);
        let changes = match &self.root {
            _ if level < PersistenceLevel::Root => Changes::None(None),
            RootState::Unmanaged(kept) => match &self.node_changes {
                Some(upper) => Changes::Upper(duplicate(upper)?),
                None => {
                    Changes::None(Some(kept.reason.clone().unwrap_or_else(|| {
                        "the node does not show the changed files".to_owned()
                    })))
                }
            },
            RootState::Overlay(overlay) => match overlay.upper()? {
                Some(upper) => Changes::Upper(upper),
                None => Changes::None(Some("the overlay is not mounted".to_owned())),
            },
            RootState::Archive(archive) => Changes::Archive(archive.clone()),
        };
        let state = self.processes.as_ref();
        let state = state.filter(|_| level == PersistenceLevel::Memory);
        let init = state.and_then(|state| state.init.clone());
        let processes = state.map(|state| match &init {
            _ if matches!(changes, Changes::None(_)) => {
                Err("the files that they use are not in it".to_owned())
            }
            None => Err("there was no init message".to_owned()),
            Some(init) if !can_be_renewed(init) => {
                Err("the server of the sandbox cannot be given another session key".to_owned())
            }
            Some(_) => state.store.clone(),
        });
        Ok(Copy {
            access: access(&request.key, &request.image),
            snapshots: snapshots.clone(),
            limits: pod.limits,
            request,
            root,
            init,
            changes,
            processes,
        })
    }
}

impl Copy {
    fn take(self) -> Result<KeptState, StateError> {
        let folder = self
            .begin()
            .map_err(StateError::io("make room for the snapshot"))?;
        let taken = self.fill(&folder);
        if taken.is_err() {
            // After a full disk its blocks are needed.
            let _ = self.snapshots.remove(&self.request.id);
        }
        taken
    }

    /// Creates the directory of the snapshot. Those that are not known any more are removed.
    fn begin(&self) -> std::io::Result<Store> {
        let SnapshotRequest { id, others, .. } = &self.request;
        for name in self.snapshots.names()? {
            if name == *id || !others.contains(&name) {
                self.snapshots.remove(&name)?;
            }
        }
        self.snapshots.folder(id)
    }

    fn fill(&self, folder: &Store) -> Result<KeptState, StateError> {
        let deadline = Deadline::after(self.limits.seconds).or_interruption(&INTERRUPTED);
        let mut files = None;
        let mut bytes_of_processes = None;
        let mut reason = None;
        if let Some(processes) = &self.processes {
            let copied = self.copy_processes(processes, folder, deadline, &mut || {
                files = Some(self.copy_files(folder, deadline)?);
                Ok(())
            });
            match copied {
                Ok(bytes) => bytes_of_processes = Some(bytes),
                Err(error) => {
                    reason = Some(format!("processes are not in the snapshot: {error}"));
                    files = None;
                    let removed = folder.remove(PROCESSES);
                    removed.map_err(StateError::io("remove the processes"))?;
                }
            }
        }
        let mut kept = match files {
            Some(files) => files,
            None => self.copy_files(folder, deadline)?,
        };
        if let Some(bytes) = bytes_of_processes {
            kept.level = PersistenceLevel::Memory;
            kept.bytes = Some(kept.bytes.unwrap_or(0).saturating_add(bytes));
        }
        if let Some(reason) = reason {
            kept.reason = Some(joined(reason, kept.reason));
        }
        let mut meta = SnapshotMeta::new(kept.level, &self.request.image);
        if kept.level == PersistenceLevel::Memory {
            let key = self.init.as_ref().and_then(session_key);
            meta.session_key = key.map(str::to_owned);
        }
        let synced = rustix::fs::syncfs(folder.descriptor());
        synced.map_err(StateError::io("write the snapshot to the volume"))?;
        deadline.check()?;
        meta.write(folder, &self.request.id, &self.request.key)?;
        Ok(kept)
    }

    /// Copies the processes, and the files while they stand still.
    fn copy_processes(
        &self,
        processes: &Result<Arc<MemoryStore>, String>,
        folder: &Store,
        deadline: Deadline,
        capture: &mut dyn FnMut() -> Result<(), StateError>,
    ) -> Result<u64, String> {
        let store = processes.as_ref().map_err(Clone::clone)?;
        let init = self.init.as_ref().ok_or("there was no init message")?;
        let to = folder
            .folder(PROCESSES)
            .map_err(|error| error.to_string())?;
        let copied = store.copy(self.root, &to, &self.access, init, capture, deadline);
        copied.map_err(|error| error.to_string())
    }

    fn copy_files(&self, folder: &Store, deadline: Deadline) -> Result<KeptState, StateError> {
        let file = |name, level| ArchiveFile {
            store: folder,
            name,
            level,
            access: &self.access,
        };
        let workspace = file(WORKSPACE, PersistenceLevel::Workspace)
            .write_all(Path::new(&self.request.workspace), self.limits, deadline)
            .map_err(StateError::of_workspace)?;
        let changes = file(ROOT, PersistenceLevel::Root);
        let root = match &self.changes {
            Changes::None(reason) => KeptState {
                reason: reason.clone(),
                ..KeptState::of(PersistenceLevel::Workspace)
            },
            Changes::Upper(upper) => {
                changes.write_upper(duplicate(upper)?, self.limits, deadline)?
            }
            Changes::Archive(archive) => archive.copy_to(changes, self.limits, deadline)?,
        };
        let bytes = [workspace.bytes, root.bytes].into_iter().flatten().sum();
        let reasons = workspace.reason.into_iter().chain(root.reason);
        Ok(KeptState {
            level: root.level,
            bytes: Some(bytes),
            reason: reasons.reduce(joined_with),
        })
    }
}

fn joined_with(one: String, other: String) -> String {
    joined(one, Some(other))
}

/// Session key that the server of the sandbox checks.
pub(super) fn session_key(init: &Init) -> Option<&str> {
    let is_server = init.probe.port.is_some() || is_executor(init);
    executor_calls::session_key(init).filter(|_| is_server)
}

/// Returns whether the processes check no session key, or one that can be replaced.
fn can_be_renewed(init: &Init) -> bool {
    is_executor(init) || session_key(init).is_none()
}

fn duplicate(directory: &OwnedFd) -> Result<OwnedFd, StateError> {
    directory
        .try_clone()
        .map_err(StateError::io("open the changed files"))
}

fn failed(error: &str) -> SnapshotReport {
    SnapshotReport {
        kept: None,
        error: Some(bounded(error.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use crds::contract::control::Probe;
    use crds::contract::variable;

    use super::*;

    #[test]
    fn processes_of_a_server_whose_key_cannot_be_replaced_are_left_out() {
        for (program, port, key, expected) in [
            ("sandbox-executor", Some(8000), "key", true),
            ("other-server", Some(8000), "key", false),
            ("other-server", None, "key", true),
            ("other-server", Some(8000), "", true),
        ] {
            let init = Init {
                command: vec![program.to_owned(), "serve".to_owned()],
                working_dir: "/".to_owned(),
                environment: [(variable::SESSION_API_KEY.to_owned(), key.to_owned())].into(),
                probe: Probe { port, path: None },
                sandbox_uid: None,
                state: None,
            };
            assert_eq!(can_be_renewed(&init), expected, "{program} {port:?} {key}");
        }
    }
}
