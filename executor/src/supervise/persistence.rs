//! State besides the workspace: prepared before any program runs, restored before the command
//! starts, kept when it has stopped (`docs/specs/supervisor.md`, section 11).

mod archive;
mod deadline;
mod error;
mod format;
mod memory;
mod mounts;
mod overlay;
mod processes;
mod remove_tree;
mod snapshots;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crds::contract::path::CHANGES_DIR;
use crds::contract::persistence::{
    KeptState, MAX_REASON_BYTES, PersistenceLevel, PodPersistence, RootMechanism, SaveLimits,
    StateAccess,
};
use futures::future::OptionFuture;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use self::archive::ArchiveRoot;
use self::error::StateError;
pub(crate) use self::memory::check as check_processes;
use self::overlay::OverlayRoot;
pub(crate) use self::overlay::check as check_root_overlay;
use self::processes::ProcessState;
pub(super) use self::processes::SavedOrReason;
use self::snapshots::PendingSnapshot;
pub(super) use self::snapshots::interrupt as interrupt_snapshot;
pub(super) use self::snapshots::{Layer, LayerError, LayerSource};
use self::store::Store;
use crate::system::{SUPERVISOR_CAPABILITIES, hide_io_uring};

/// Time beyond the limit of a save in which a thread that hangs in a system call is waited for.
const HANG_GRACE: Duration = Duration::from_secs(5);

/// Persistence of this Pod.
#[derive(Debug)]
pub(super) struct Persistence {
    /// `None` if the workspace alone is kept.
    pod: Option<PodPersistence>,
    root: RootState,
    /// Present at level `Memory`.
    processes: Option<ProcessState>,
    /// Id of the command's processes. It stays when they go on in another container.
    processes_id: String,
    /// Key and image, once the init message is there.
    access: StateAccess,
    /// Directory for snapshots; `None` if the workspace alone is kept.
    snapshots: Option<Arc<Store>>,
    /// Changed files that the node keeps, if it shows them.
    node_changes: Option<OwnedFd>,
    /// Held by the copy that is being made.
    copying: Arc<Semaphore>,
    /// Snapshot that the sandbox is to begin with.
    pending: Option<PendingSnapshot>,
    /// The volume has the files of a snapshot.
    has_begun: bool,
}

/// Directories that are opened while the store is visible.
#[derive(Debug, Default)]
struct VisibleStore {
    snapshots: Option<Store>,
    node_changes: Option<OwnedFd>,
    pending: Option<PendingSnapshot>,
    has_begun: bool,
}

impl VisibleStore {
    fn open(store: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Self {
            snapshots: Store::open_snapshots(store)
                .inspect_err(|error| tracing::warn!(%error, "cannot open the snapshots"))
                .ok(),
            node_changes: rustix::fs::open(CHANGES_DIR, flags, Mode::empty()).ok(),
            pending: PendingSnapshot::open(store),
            has_begun: PendingSnapshot::has_begun(store),
        }
    }
}

#[derive(Debug)]
enum RootState {
    /// Nothing is kept, or the node keeps it.
    Unmanaged(KeptState),
    Overlay(Arc<OverlayRoot>),
    Archive(Arc<ArchiveRoot>),
}

/// Directories of the supervisor.
#[derive(Debug, Clone)]
pub(super) struct StateDirectories {
    /// Mount point of the store.
    pub(super) store: PathBuf,
    /// Directory with the init message.
    pub(super) init: PathBuf,
}

/// Programs that a save of processes needs.
#[derive(Debug, Clone)]
pub(super) struct ProcessPrograms {
    pub(super) criu: PathBuf,
    /// File of this binary.
    pub(super) executor: PathBuf,
}

impl Persistence {
    /// Prepares the mechanism of the Pod. If that fails, the workspace alone is kept, and reports
    /// say why.
    pub(super) async fn prepare(
        pod: Option<PodPersistence>,
        node_root: Option<KeptState>,
        directories: StateDirectories,
        programs: ProcessPrograms,
    ) -> Self {
        let pod = pod.filter(|pod| pod.level >= PersistenceLevel::Root);
        // The store is visible until the root is prepared.
        let opened = pod.is_some().then(|| directories.store.clone());
        let opened = opened.map(|store| spawn_blocking(move || VisibleStore::open(&store)));
        let opened = OptionFuture::from(opened).await;
        let opened = opened.and_then(Result::ok).unwrap_or_default();
        let mut processes = match &pod {
            Some(pod) if pod.level == PersistenceLevel::Memory => {
                if let Err(error) = hide_io_uring() {
                    tracing::info!(%error, "processes that use io_uring cannot be saved");
                }
                Some(ProcessState::prepare(pod.limits, directories.clone(), programs).await)
            }
            Some(_) => {
                let store = directories.store.clone();
                let removed = spawn_blocking(move || memory::remove(&store)).await;
                if let Ok(Err(error)) = removed {
                    tracing::error!(%error, "cannot remove saved processes");
                }
                None
            }
            None => None,
        };
        let workspace = KeptState::of(PersistenceLevel::Workspace);
        let root = match pod.as_ref().map(|pod| pod.root) {
            None => RootState::Unmanaged(workspace),
            Some(RootMechanism::Node) => RootState::Unmanaged(node_root.unwrap_or(KeptState {
                reason: Some("the node has not reported what it restored".to_owned()),
                ..workspace
            })),
            Some(mechanism) => {
                let prepared = spawn_blocking(move || prepare(mechanism, directories)).await;
                let prepared = prepared.map_err(|error| error.to_string());
                let prepared = prepared.and_then(|prepared| prepared.map_err(|e| e.to_string()));
                prepared.unwrap_or_else(|reason| {
                    tracing::error!(reason, "files outside of the workspace are not kept");
                    RootState::Unmanaged(KeptState {
                        reason: Some(reason),
                        ..workspace
                    })
                })
            }
        };
        if let Some(processes) = &mut processes
            && pod
                .as_ref()
                .is_some_and(|pod| pod.root != RootMechanism::Node)
            && let RootState::Unmanaged(KeptState {
                reason: Some(reason),
                ..
            }) = &root
        {
            processes.store = Err(reason.clone());
        }
        Self {
            pod,
            root,
            processes,
            processes_id: processes::random_id(),
            access: StateAccess {
                key: String::new(),
                image: String::new(),
                source: None,
            },
            snapshots: opened.snapshots.map(Arc::new),
            node_changes: opened.node_changes,
            copying: Arc::new(Semaphore::new(1)),
            pending: opened.pending,
            has_begun: opened.has_begun,
        }
    }

    /// Capabilities of the supervisor that its programs must not have; `None` if the workspace alone
    /// is kept.
    pub(super) fn withheld(&self) -> Option<CapabilitySet> {
        let names = self.pod.as_ref()?.withheld.iter();
        let sets = names.filter_map(|name| {
            let set = CapabilitySet::from_name(name);
            if set.is_none() {
                tracing::warn!(name, "unknown capability");
            }
            set
        });
        Some(sets.fold(SUPERVISOR_CAPABILITIES, CapabilitySet::union))
    }

    /// Returns whether the root will change at the init message, so that a program that was started
    /// before cannot go on.
    pub(super) fn has_state(&self) -> bool {
        if self.pending.is_some() {
            return true;
        }
        match &self.root {
            RootState::Unmanaged(_) => false,
            RootState::Overlay(root) => root.has_state(),
            RootState::Archive(root) => root.has_state(),
        }
    }

    /// Restores the root. `None` if the Pod has no persistence.
    pub(super) async fn restore(&mut self, access: Option<&StateAccess>) -> Option<KeptState> {
        let pod = self.pod.clone()?;
        if let Some(access) = access {
            self.access = access.clone();
        }
        let access = self.access.clone();
        let mut restored = match &self.root {
            RootState::Unmanaged(kept) => kept.clone(),
            RootState::Overlay(root) => {
                let root = root.clone();
                or_reason(spawn_blocking(move || root.restore(&access))).await
            }
            RootState::Archive(root) => {
                let root = root.clone();
                or_reason(spawn_blocking(move || root.restore(&access, pod.limits))).await
            }
        };
        restored.reason = restored.reason.map(bounded);
        if let Some(reason) = &restored.reason {
            tracing::warn!(reason, "not all of the saved state was restored");
        }
        Some(restored)
    }

    /// Keeps the state of a stopped command. `image` is that of a save call, if there was one.
    /// `processes` are what was saved of it at level `Memory`.
    pub(super) async fn keep(
        &self,
        image: Option<&str>,
        processes: Option<SavedOrReason>,
    ) -> KeptState {
        let Some(pod) = &self.pod else {
            return KeptState::of(PersistenceLevel::Workspace);
        };
        let access = self.access_to(image);
        let limits = pod.limits;
        let limit = Duration::from_secs(limits.seconds).saturating_add(HANG_GRACE);
        let end = Instant::now() + limit;
        let saved = match &self.root {
            RootState::Unmanaged(_) if pod.root == RootMechanism::Node => {
                Ok(KeptState::of(PersistenceLevel::Root))
            }
            RootState::Unmanaged(kept) => Ok(kept.clone()),
            RootState::Overlay(root) => {
                let root = root.clone();
                let saving = spawn_blocking(move || root.save(&access.image, limits));
                match until(end, limits, saving).await {
                    Err(StateError::Time(limit)) => Ok(KeptState {
                        reason: Some(StateError::NotSynced(limit).to_string()),
                        ..KeptState::of(PersistenceLevel::Root)
                    }),
                    saved => saved,
                }
            }
            RootState::Archive(root) => {
                let root = root.clone();
                let saving = spawn_blocking(move || root.save(&access, limits));
                until(end, limits, saving).await
            }
        };
        let mut kept = saved.unwrap_or_else(|error| KeptState {
            reason: Some(error.to_string()),
            ..KeptState::of(PersistenceLevel::Workspace)
        });
        // A command that ends by itself leaves no processes.
        if image.is_some() || processes.is_some() {
            kept = self.keep_processes(processes, kept, end).await;
        }
        kept.reason = kept.reason.map(bounded);
        kept
    }

    /// Access for a save. `image` is that of the call, if there was one.
    fn access_to(&self, image: Option<&str>) -> StateAccess {
        let mut access = self.access.clone();
        if let Some(image) = image.filter(|image| !image.is_empty()) {
            image.clone_into(&mut access.image);
        }
        access
    }
}

/// Result of a restore; the reason if its thread has failed.
async fn or_reason(restoring: JoinHandle<KeptState>) -> KeptState {
    restoring.await.unwrap_or_else(|error| KeptState {
        reason: Some(error.to_string()),
        ..KeptState::of(PersistenceLevel::Workspace)
    })
}

/// Result of a part of a save. One that hangs in a system call goes on unattended.
async fn until<T>(
    end: Instant,
    limits: SaveLimits,
    saving: JoinHandle<Result<T, StateError>>,
) -> Result<T, StateError> {
    match timeout_at(end, saving).await {
        Ok(Ok(saved)) => saved,
        Ok(Err(error)) => Err(StateError::io("save the state")(error)),
        Err(_) => Err(StateError::Time(limits.seconds)),
    }
}

fn prepare(
    mechanism: RootMechanism,
    directories: StateDirectories,
) -> Result<RootState, StateError> {
    let failed = StateError::io::<std::io::Error>;
    if !rustix::process::geteuid().is_root() {
        return Err(StateError::NotRoot);
    }
    let store = Store::open(&directories.store).map_err(failed("open the store"))?;
    if mechanism == RootMechanism::Overlay {
        let root = OverlayRoot::prepare(store, directories.store)?;
        return Ok(RootState::Overlay(Arc::new(root)));
    }
    let private = [&*directories.store, &*directories.init];
    let root = ArchiveRoot::prepare(store, Path::new("/"), &private)?;
    Ok(RootState::Archive(Arc::new(root)))
}

/// Reason why changes of one image are not used with another one.
fn image_change(from: &str, to: &str) -> String {
    let name = |image: &str| {
        if image.is_empty() {
            "an unknown image".to_owned()
        } else {
            image.chars().take(100).collect()
        }
    };
    format!(
        "the image has changed from {} to {}: files outside of the workspace are those of the new \
         image",
        name(from),
        name(to)
    )
}

fn joined(reason: String, earlier: Option<String>) -> String {
    match earlier {
        Some(earlier) => format!("{reason}; {earlier}"),
        None => reason,
    }
}

fn bounded(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hung_part_of_a_save_is_left_behind() {
        let limits = SaveLimits {
            bytes: 0,
            files: 0,
            seconds: 7,
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let hung = spawn_blocking(move || Ok(receiver.recv().is_ok()));
        let saved = until(Instant::now(), limits, hung).await;
        assert!(matches!(saved, Err(StateError::Time(7))));
        sender.send(()).unwrap();
    }
}
