//! Level `Memory`: the processes of the command on the volume, in one encrypted archive of CRIU. The
//! next start uses it or discards it, so that no state ever runs twice.

mod check;
mod meta;
mod newer;
mod restore;
mod shared_files;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use checkpoint::{
    ArchiveKey, CheckpointError, Criu, DumpOptions, DumpReport, FailureReason, Limits, reserve_pids,
};
use crds::contract::control::Init;
use crds::contract::persistence::{SaveLimits, StateAccess};
use rustix::process::Pid;
use tokio::time::Instant;

pub(crate) use self::check::check;
use self::meta::MemoryMeta;
use self::shared_files::SharedFiles;
use super::deadline::Deadline;
use super::error::StateError;
use super::store::Store;

const FOLDER: &str = "memory";
const ARCHIVE: &str = "archive";
/// Present once the archive and the root beside it are complete.
const META: &str = "meta.json";
const TEMPORARY: &str = "meta.json.new";
const MAX_META_BYTES: u64 = 64 << 10;
/// Marks an archive whose processes went on, or are not to.
const USED: &str = "used";

/// Numbers up to this one are for the supervisor and CRIU, so that they do not take those of a
/// saved tree.
const LAST_RESERVED_PID: u32 = 1000;
/// Last number that is reserved before a restore. CRIU and exec probes of a dormant Pod take some
/// of the rest. Below 300, where the kernel begins again after its highest number.
const RESERVED_BEFORE_RESTORE: u32 = 200;
/// Highest number that is reserved after a restore: threads may have to take them, one by one.
const MAX_RESERVED_PID: u32 = 20_000;

/// Directory `memory` of the store.
#[derive(Debug)]
pub(super) struct MemoryStore {
    folder: Store,
    shared_files: Option<SharedFiles>,
    criu: Criu,
    limits: SaveLimits,
    /// Version of processes that this Pod has found and set aside.
    newer: Option<u32>,
}

/// Archive of processes that have ended. It counts once it is committed.
#[derive(Debug)]
pub(in crate::supervise) struct SavedProcesses {
    bytes: u64,
    meta: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("they were not saved")]
    Missing,
    #[error("an earlier start has used them, and they go on once only")]
    Used,
    #[error(
        "they have version {0}, which this supervisor does not read: they are set aside, and never \
         go on"
    )]
    Newer(u32),
    #[error("the files that they use were not restored")]
    Files,
    #[error("{0}")]
    Obstacle(String),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{}", .0.reason)]
    Checkpoint(#[from] CheckpointError),
}

struct Dump<'a> {
    root: Pid,
    archive: PathBuf,
    key: ArchiveKey,
    context: &'a [u8],
    leave_running: bool,
    approve: &'a mut dyn FnMut() -> Result<(), String>,
}

/// Returns whether a snapshot has processes.
pub(super) fn has_copy(snapshot: &Store) -> bool {
    snapshot.has(META)
}

/// Removes what an earlier Pod saved, for one of a lower level: its files change without the
/// processes. `store` is the mount point.
pub(super) fn remove(store: &Path) -> io::Result<()> {
    let store = Store::open(store)?;
    newer::set_aside(&store)?;
    store.remove(FOLDER)
}

impl MemoryStore {
    /// Opens the directory below the mount point of the store. `scratch` is a directory in memory.
    pub(super) fn open(
        store: &Path,
        scratch: PathBuf,
        program: PathBuf,
        limits: SaveLimits,
    ) -> Result<Self, StateError> {
        if !program.is_file() {
            return Err(StateError::NoCriu);
        }
        let store = Store::open(store).map_err(failed("open the store"))?;
        let newer = newer::set_aside(&store);
        let newer = newer.map_err(failed("set processes of a newer format aside"))?;
        let folder = store.folder(FOLDER).map_err(failed("open the store"))?;
        Ok(Self {
            shared_files: SharedFiles::prepare(&folder)?,
            folder,
            criu: Criu { program, scratch },
            limits,
            newer,
        })
    }

    /// Returns whether this start may restore processes.
    pub(super) fn has_archive(&self) -> bool {
        self.folder.has(META) && !self.folder.has(USED)
    }

    /// Removes what an earlier save left, except for the mark of its use.
    fn discard(&self) -> Result<(), StateError> {
        // First what makes the archive valid.
        for name in [META, TEMPORARY, ARCHIVE] {
            let removed = self.folder.remove(name);
            removed.map_err(failed("remove earlier processes"))?;
        }
        if let Some(files) = &self.shared_files {
            files.discard()?;
        }
        self.folder.sync().map_err(failed("sync the store"))
    }

    /// Saves the tree below a process and ends it, in `time` at most. After an error the tree goes on.
    pub(super) fn dump(
        &self,
        root: Pid,
        id: String,
        access: &StateAccess,
        init: &Init,
        time: Duration,
    ) -> Result<SavedProcesses, MemoryError> {
        self.discard()?;
        let secret = secret(&access.key)?;
        let meta = describe(access, init, &secret, id)?;
        let dump = Dump {
            root,
            archive: self.folder.path(ARCHIVE),
            key: ArchiveKey::new(secret),
            context: &meta,
            leave_running: false,
            // Nothing changes them now.
            approve: &mut || match &self.shared_files {
                Some(files) => files
                    .save(access, self.limits)
                    .map_err(|error| error.to_string()),
                None => Ok(()),
            },
        };
        let bytes = self.run(dump, time)?.archive_bytes;
        Ok(SavedProcesses { bytes, meta })
    }

    /// Copies the tree below a process, which goes on, to another directory. `capture` is called
    /// while it stands still. Returns the bytes.
    pub(super) fn copy(
        &self,
        root: Pid,
        to: &Store,
        access: &StateAccess,
        init: &Init,
        capture: &mut dyn FnMut() -> Result<(), StateError>,
        deadline: Deadline,
    ) -> Result<u64, MemoryError> {
        let secret = secret(&access.key)?;
        let meta = describe(access, &meta::without_sandbox(init), &secret, String::new())?;
        let dump = Dump {
            root,
            archive: to.path(ARCHIVE),
            key: ArchiveKey::new(secret),
            context: &meta,
            leave_running: true,
            approve: &mut || {
                let files = self.shared_files.as_ref();
                files
                    .map_or(Ok(()), |files| {
                        files.copy_to(to, access, self.limits, deadline)
                    })
                    .and_then(|()| capture())
                    .map_err(|error| error.to_string())
            },
        };
        let bytes = self
            .run(dump, Duration::from_secs(self.limits.seconds))?
            .archive_bytes;
        let written = to
            .create(TEMPORARY)
            .and_then(|mut file| file.write_all(&meta).map(|()| file))
            .and_then(|file| to.commit(&file, TEMPORARY, META));
        written.map_err(failed("describe the processes"))?;
        Ok(bytes)
    }

    fn run(&self, mut dump: Dump<'_>, time: Duration) -> Result<DumpReport, MemoryError> {
        let begin = Instant::now();
        let report = match self.run_once(&mut dump, false, time) {
            // The search costs a second: only those that need it.
            Err(error) if matches!(error.reason, FailureReason::WatchedFiles) => {
                let left = time.saturating_sub(begin.elapsed());
                self.run_once(&mut dump, true, left)
            }
            report => report,
        };
        let report = report.inspect_err(log)?;
        tracing::debug!(bytes = report.archive_bytes, time = ?report.duration, "processes saved");
        Ok(report)
    }

    fn run_once(
        &self,
        dump: &mut Dump<'_>,
        find_watched_files: bool,
        time: Duration,
    ) -> Result<DumpReport, CheckpointError> {
        let options = DumpOptions {
            key: &dump.key,
            context: dump.context,
            limits: self.limits(time),
            leave_running: dump.leave_running,
            find_watched_files,
            // A tree that goes on need not wait for the disk.
            sync: !dump.leave_running,
            approve: &mut |_| (dump.approve)(),
        };
        self.criu
            .dump(dump.root.as_raw_pid(), &dump.archive, options)
    }

    /// Makes the archive of a save valid, once the files that its processes use are saved, or
    /// discards it with the reason of a failure. Returns its bytes.
    pub(super) fn finish(&self, saved: Result<SavedProcesses, String>) -> Result<u64, String> {
        let finished = saved.and_then(|saved| {
            self.commit(&saved).map_err(|error| error.to_string())?;
            Ok(saved.bytes)
        });
        if finished.is_err() {
            self.discard_or_log();
        }
        finished
    }

    fn commit(&self, saved: &SavedProcesses) -> Result<(), StateError> {
        let unmarked = self.folder.remove(USED);
        unmarked.map_err(failed("remove the mark of earlier processes"))?;
        let mut file = self.folder.create(TEMPORARY);
        let written = match &mut file {
            Ok(file) => file
                .write_all(&saved.meta)
                .and_then(|()| self.folder.commit(file, TEMPORARY, META)),
            Err(_) => file.map(drop),
        };
        written.map_err(failed("describe the processes"))
    }

    fn discard_or_log(&self) {
        if let Err(error) = self.discard() {
            tracing::error!(%error, "cannot discard saved processes");
        }
    }

    fn limits(&self, time: Duration) -> Limits {
        Limits {
            time,
            bytes: self.limits.bytes,
        }
    }
}

/// Marks what is in a folder, durably: none of it goes on from now on.
fn mark(folder: &Store) -> io::Result<()> {
    folder.create(USED)?.sync_all()?;
    folder.sync()
}

/// Reserves the numbers that a supervisor and CRIU take. Saved processes have higher ones.
pub(super) fn reserve_own(saved_processes_follow: bool) {
    reserve_until(if saved_processes_follow {
        RESERVED_BEFORE_RESTORE
    } else {
        LAST_RESERVED_PID
    });
}

/// Reserves numbers, so that a supervisor of the next Pod does not take those of the tree.
fn reserve(highest: u32) {
    reserve_until(highest.clamp(LAST_RESERVED_PID, MAX_RESERVED_PID));
}

fn reserve_until(last: u32) {
    if let Err(error) = reserve_pids(last) {
        tracing::warn!(%error, "cannot reserve process numbers");
    }
}

/// Content of `meta.json` for processes that are saved now.
fn describe(
    access: &StateAccess,
    init: &Init,
    secret: &[u8; 32],
    id: String,
) -> Result<Vec<u8>, StateError> {
    let meta = current(access, init, secret, id)?;
    serde_json::to_vec(&meta).map_err(failed("describe the processes"))
}

fn current(
    access: &StateAccess,
    init: &Init,
    secret: &[u8; 32],
    id: String,
) -> Result<MemoryMeta, StateError> {
    let init = meta::init_digest(init, secret).map_err(failed("read the init message"))?;
    MemoryMeta::of_now(&access.image, init, id).map_err(failed("read the features of the node"))
}

fn secret(text: &str) -> Result<[u8; 32], StateError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| StateError::Key)?;
    bytes.try_into().map_err(|_| StateError::Key)
}

fn failed<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> StateError {
    StateError::io(action)
}

fn log(error: &CheckpointError) {
    tracing::warn!(%error, log = error.log, "CRIU failed");
}
