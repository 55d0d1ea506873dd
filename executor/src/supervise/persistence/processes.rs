//! Processes of the command as a part of the state.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crds::contract::control::Init;
use crds::contract::persistence::{KeptState, PersistenceLevel, SaveLimits};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::process::Pid;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::error::StateError;
use super::memory::{self, MemoryStore, SavedProcesses};
use super::snapshots::PendingSnapshot;
use crate::supervise::executor_calls;

use super::{HANG_GRACE, Persistence, ProcessPrograms, StateDirectories, bounded, joined, until};

/// Result of a save of the processes, with the reason of a failure.
pub(in crate::supervise) type SavedOrReason = Result<SavedProcesses, String>;

/// Processes at level `Memory`.
#[derive(Debug)]
pub(super) struct ProcessState {
    /// Directory for them, or the reason why they are not saved.
    pub(super) store: Result<Arc<MemoryStore>, String>,
    /// File of this binary, as all mounts of the container show it.
    pub(super) executor: PathBuf,
    /// The init message, once it is there.
    pub(super) init: Option<Init>,
}

impl ProcessState {
    pub(super) async fn prepare(
        limits: SaveLimits,
        directories: StateDirectories,
        programs: ProcessPrograms,
    ) -> Self {
        let ProcessPrograms { criu, executor } = programs;
        let StateDirectories { store, init } = directories;
        let opening = spawn_blocking(move || MemoryStore::open(&store, init, criu, limits));
        let store = match opening.await {
            Ok(opened) => opened.map(Arc::new).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = &store {
            tracing::warn!(reason, "processes are not kept");
        }
        Self {
            store,
            executor,
            init: None,
        }
    }
}

/// Id of processes that begin anew. Empty, which counts as none, if there are no random numbers.
pub(super) fn random_id() -> String {
    let mut id = [0; 16];
    let filled = SystemRandom::new().fill(&mut id);
    filled.map_or_else(|_| String::new(), |()| URL_SAFE_NO_PAD.encode(id))
}

impl Persistence {
    pub(in crate::supervise) fn processes_id(&self) -> &str {
        &self.processes_id
    }

    /// File of this binary, if its `tree-root` has to start programs.
    pub(in crate::supervise) fn tree_root(&self) -> Option<PathBuf> {
        let state = self.processes.as_ref()?;
        state.store.as_ref().ok().map(|_| state.executor.clone())
    }

    /// Returns whether the init message may let saved processes go on.
    pub(in crate::supervise) fn has_processes(&self) -> bool {
        let pending = self.pending.as_ref();
        let memory = self.memory();
        memory.is_some_and(|store| {
            store.has_archive() || pending.is_some_and(PendingSnapshot::has_processes)
        })
    }

    fn memory(&self) -> Option<&Arc<MemoryStore>> {
        self.processes.as_ref()?.store.as_ref().ok()
    }

    /// Reserves the process numbers of the supervisor, before a program starts.
    pub(in crate::supervise) async fn reserve_pids(&self) {
        if self.memory().is_some() {
            let follow = self.has_processes();
            let _ = spawn_blocking(move || memory::reserve_own(follow)).await;
        }
    }

    /// Lets the saved processes go on after their root is restored. Returns the root of the tree;
    /// without one the command has to start.
    pub(in crate::supervise) async fn restore_processes(
        &mut self,
        init: &Init,
        mut restored: KeptState,
    ) -> (KeptState, Option<Pid>) {
        let Some(state) = &mut self.processes else {
            return (restored, None);
        };
        state.init = Some(init.clone());
        let reason = match &state.store {
            Err(reason) => reason.clone(),
            Ok(store) => {
                let (store, access, init) = (store.clone(), self.access.clone(), init.clone());
                let has_files = restored.level >= PersistenceLevel::Root;
                let restoring = spawn_blocking(move || store.restore(&access, &init, has_files));
                match restoring.await {
                    Ok(Ok(Some((root, id)))) => {
                        self.processes_id = id;
                        restored.level = PersistenceLevel::Memory;
                        return (restored, Some(root));
                    }
                    Ok(Ok(None)) => return (restored, None),
                    Ok(Err(error)) => error.to_string(),
                    Err(error) => error.to_string(),
                }
            }
        };
        let reason = format!("processes did not go on: {reason}");
        tracing::warn!(reason);
        restored.reason = Some(bounded(joined(reason, restored.reason)));
        (restored, None)
    }

    /// Saves the processes below `root` and ends them. `None` if the level is lower. `image` is that
    /// of the save call, if there was one, `address` that of the command's port, `time` a lower limit
    /// than that of the Pod.
    pub(in crate::supervise) async fn save_processes(
        &self,
        root: Pid,
        image: Option<&str>,
        address: IpAddr,
        time: Option<Duration>,
    ) -> Option<SavedOrReason> {
        let state = self.processes.as_ref()?;
        let (store, init) = match (&state.store, &state.init) {
            (Ok(store), Some(init)) => (store.clone(), init.clone()),
            (Err(reason), _) => return Some(Err(reason.clone())),
            (_, None) => return Some(Err("there was no init message".to_owned())),
        };
        let limit = self.pod.as_ref().map_or(0, |pod| pod.limits.seconds);
        let limit = Duration::from_secs(limit);
        let time = time.map_or(limit, |time| time.min(limit));
        let begin = Instant::now();
        match timeout(time, executor_calls::prepare_save(address, &init)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the executor is not prepared for the save"),
            Err(_) => tracing::warn!("the executor does not prepare for the save in time"),
        }
        let left = time.saturating_sub(begin.elapsed());
        let (access, id) = (self.access_to(image), self.processes_id.clone());
        let dump = spawn_blocking(move || store.dump(root, id, &access, &init, left));
        let limit = left.saturating_add(HANG_GRACE);
        Some(match timeout(limit, dump).await {
            Ok(Ok(saved)) => saved.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "the save exceeds the limit of {} s",
                time.as_secs()
            )),
        })
    }

    /// Completes the state of a save with its processes, once the root is kept, until `end`.
    pub(super) async fn keep_processes(
        &self,
        saved: Option<SavedOrReason>,
        mut kept: KeptState,
        end: Instant,
    ) -> KeptState {
        let (Some(state), Some(pod)) = (&self.processes, &self.pod) else {
            return kept;
        };
        let limits = pod.limits;
        let saved = saved.unwrap_or_else(|| Err("the command had ended".to_owned()));
        let saved = saved.and_then(|saved| {
            if kept.level < PersistenceLevel::Root {
                Err("the files that they use are not kept".to_owned())
            } else if Instant::now() >= end {
                Err(StateError::Time(limits.seconds).to_string())
            } else {
                Ok(saved)
            }
        });
        let finished = match state.store.clone() {
            Ok(store) => {
                let finishing = spawn_blocking(move || Ok(store.finish(saved)));
                let finished = until(end, limits, finishing).await;
                finished.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(reason) => Err(reason),
        };
        match finished {
            Ok(bytes) => {
                kept.level = PersistenceLevel::Memory;
                kept.bytes = Some(kept.bytes.unwrap_or(0).saturating_add(bytes));
            }
            Err(reason) => {
                let reason = format!("processes are not kept: {reason}");
                kept.reason = Some(joined(reason, kept.reason));
            }
        }
        kept
    }
}
