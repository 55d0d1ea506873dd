//! Dump and restore of a tree by CRIU.

mod images;
mod log;
mod messages;
mod protobuf;
mod scratch;
mod session;

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

use self::images::capture::ImageCapture;
use self::images::serve::ImageServer;
use self::messages::{CommonOptions, dump_request, restore_request};
use self::scratch::ScratchFolder;
use self::session::{FIRST_INHERITED, Outcome, Session};
use crate::archive::cipher::Algorithm;
use crate::archive::manifest::Manifest;
use crate::archive::reader::ArchiveReader;
use crate::archive::writer::ArchiveWriter;
use crate::deadline::{Deadline, monotonic_now};
use crate::descriptors::outside_pipes;
use crate::error::{CheckpointError, FailureReason};
use crate::options::{DumpOptions, DumpReport, Limits, RestoreOptions, Restored};
use crate::process_tree::{ProcessTree, exists, is_own_child};

/// Time in which what is left of a failed restore ends, so that another can follow.
const REAP_GRACE: Duration = Duration::from_millis(500);
const REAP_INTERVAL: Duration = Duration::from_millis(2);

/// The program, and a folder that no process of a tree can write, for its socket.
#[derive(Debug, Clone)]
pub struct Criu {
    pub program: PathBuf,
    pub scratch: PathBuf,
}

impl Criu {
    /// Saves the tree below a process into one file. Without `leave_running` the tree is killed
    /// once the archive is complete and approved; before that, a failure lets it go on.
    pub fn dump(
        &self,
        root: i32,
        archive: &Path,
        mut options: DumpOptions<'_>,
    ) -> Result<DumpReport, CheckpointError> {
        let start = monotonic_now();
        let tree = ProcessTree::read(root).ok_or(FailureReason::ProcessMissing)?;
        if tree.is_traced() {
            return Err(FailureReason::Traced.into());
        }
        let (lowest_pid, highest_pid) = tree.pid_range();
        let mut manifest = Manifest {
            root_pid: root,
            pids: tree.pids.clone(),
            highest_pid,
            lowest_pid,
            outside_pipes: outside_pipes(&tree),
            image_bytes: 0,
        };
        let scratch = ScratchFolder::create(&self.scratch).map_err(FailureReason::Io)?;
        let listener = scratch
            .listen("streamer-capture.sock")
            .map_err(FailureReason::Io)?;
        let bytes = options.limits.bytes;
        let writer = ArchiveWriter::create(
            archive,
            Algorithm::fastest(),
            options.key,
            options.context,
            bytes,
            options.sync,
        )?;
        let mut session = match Session::start(&self.program, options.limits.time, Vec::new()) {
            Ok(session) => session,
            Err(error) => {
                writer.discard();
                return Err(error.into());
            }
        };
        let mut capture = ImageCapture::new(listener, session.pid(), writer);
        let request = dump_request(
            &common_options(&scratch, options.limits),
            root,
            options.leave_running,
            options.find_watched_files,
        );
        let mut archive_bytes = 0;
        let result = session.send(&request).and_then(|()| {
            session.run(&mut capture, |step, capture| {
                if step == "post-dump" {
                    let archive = capture.archive();
                    manifest.image_bytes = archive.image_bytes();
                    archive_bytes = complete(archive, &manifest, &mut options)?;
                }
                Ok(())
            })
        });
        let is_complete = archive_bytes > 0;
        match conclude(result, session) {
            Ok((_, _)) if is_complete => Ok(DumpReport {
                archive_bytes,
                manifest,
                duration: monotonic_now().saturating_sub(start),
            }),
            concluded => {
                capture.into_archive().discard();
                tree.resume_stopped();
                Err(concluded.err().unwrap_or(FailureReason::Protocol.into()))
            }
        }
    }

    /// Restores a tree from its archive. The root becomes a child of this process; its number and
    /// those of all others must be free. A failure of CRIU that is not understood, before anything is
    /// approved, is followed by one more attempt.
    pub fn restore(
        &self,
        archive: &Path,
        mut options: RestoreOptions<'_>,
    ) -> Result<Restored, CheckpointError> {
        let descriptors = std::mem::take(&mut options.descriptors);
        let copies: io::Result<Vec<_>> = descriptors
            .iter()
            .map(|(name, descriptor)| Ok((name.clone(), descriptor.try_clone()?)))
            .collect();
        let copies = copies.map_err(FailureReason::Io)?;
        let start = monotonic_now();
        let mut is_approved = false;
        match self.try_restore(archive, descriptors, &mut options, &mut is_approved) {
            Err(first) if first.reason.is_unknown() && !is_approved => {
                let elapsed = monotonic_now().saturating_sub(start);
                options.limits.time = options.limits.time.saturating_sub(elapsed);
                match self.try_restore(archive, copies, &mut options, &mut is_approved) {
                    Ok(second) => Ok(Restored {
                        failed_attempt: Some(first),
                        ..second
                    }),
                    // The second failure may be a consequence of the first.
                    Err(second) => Err(CheckpointError {
                        log: format!("{}\nsecond attempt: {second}\n{}", first.log, second.log),
                        ..first
                    }),
                }
            }
            only => only,
        }
    }

    fn try_restore(
        &self,
        archive: &Path,
        descriptors: Vec<(String, OwnedFd)>,
        options: &mut RestoreOptions<'_>,
        is_approved: &mut bool,
    ) -> Result<Restored, CheckpointError> {
        let start = monotonic_now();
        let reader = ArchiveReader::open(archive, options.key, options.context)?;
        let manifest = reader.manifest.clone();
        if let Some(missing) = missing_descriptor(&manifest, &descriptors) {
            return Err(FailureReason::DescriptorMissing(missing).into());
        }
        // Checked here too, so that what is left of a failure can be told from another process.
        if manifest.pids.iter().any(|pid| exists(*pid)) {
            return Err(FailureReason::PidInUse.into());
        }
        let scratch = ScratchFolder::create(&self.scratch).map_err(FailureReason::Io)?;
        let listener = scratch
            .listen("streamer-serve.sock")
            .map_err(FailureReason::Io)?;
        let (names, descriptors): (Vec<String>, Vec<OwnedFd>) = descriptors.into_iter().unzip();
        let mut session = Session::start(&self.program, options.limits.time, descriptors)?;
        let inherited: Vec<_> = names.into_iter().zip(FIRST_INHERITED..).collect();
        let mut server = ImageServer::new(listener, session.pid(), reader);
        let common = common_options(&scratch, options.limits);
        let result = session
            .send(&restore_request(&common, &inherited))
            .and_then(|()| {
                session.run(&mut server, |step, _| {
                    if step == "post-restore" && !*is_approved {
                        (options.approve)(&manifest).map_err(FailureReason::Vetoed)?;
                        *is_approved = true;
                    }
                    Ok(())
                })
            });
        close_later(server);
        match conclude(result, session) {
            Ok((outcome, terminals)) if *is_approved => Ok(Restored {
                pid: outcome.pid.unwrap_or(manifest.root_pid),
                terminals,
                manifest,
                duration: monotonic_now().saturating_sub(start),
                failed_attempt: None,
            }),
            concluded => {
                kill_remains(&manifest);
                Err(concluded.err().unwrap_or(FailureReason::Protocol.into()))
            }
        }
    }
}

fn common_options(scratch: &ScratchFolder, limits: Limits) -> CommonOptions {
    CommonOptions {
        folder: scratch.descriptor(),
        timeout: limits.time.as_secs().max(1),
    }
}

/// The images have all arrived and the tree stands still.
fn complete(
    archive: &mut ArchiveWriter,
    manifest: &Manifest,
    options: &mut DumpOptions<'_>,
) -> Result<u64, FailureReason> {
    let bytes = archive.complete(manifest.clone(), options.sync)?;
    (options.approve)(manifest).map_err(FailureReason::Vetoed)?;
    archive.put_in_place(options.sync)?;
    Ok(bytes)
}

/// Ends CRIU and finds the reason of a failure in what it said.
fn conclude(
    result: Result<Outcome, FailureReason>,
    session: Session,
) -> Result<(Outcome, Vec<OwnedFd>), CheckpointError> {
    let (log, terminals) = session.finish();
    let log = log.to_text();
    let reason = match result {
        Ok(outcome) if outcome.success => return Ok((outcome, terminals)),
        // The message has what the first process says, and the log also what came before.
        Ok(outcome) => log::reason_of(&format!("{log}\n{}", outcome.error)),
        Err(FailureReason::Criu) => log::reason_of(&log),
        // A CRIU that ends by itself closes its sockets, and its log tells more.
        Err(FailureReason::Io(error)) if is_disconnect(&error) => log::reason_of(&log),
        Err(reason) => reason,
    };
    Err(CheckpointError { reason, log })
}

fn is_disconnect(error: &io::Error) -> bool {
    [
        ErrorKind::BrokenPipe,
        ErrorKind::ConnectionReset,
        ErrorKind::UnexpectedEof,
    ]
    .contains(&error.kind())
}

/// Closes the archive apart: if the approval has removed it, its blocks and its pages in memory are
/// freed now, which takes 0.2 s for 256 MiB.
fn close_later(server: ImageServer) {
    let closing = std::thread::Builder::new().name("close".to_owned());
    // Without a thread it is closed here.
    let _ = closing.spawn(move || drop(server));
}

fn missing_descriptor(manifest: &Manifest, given: &[(String, OwnedFd)]) -> Option<String> {
    let names = manifest.outside_pipes.iter().map(|pipe| &pipe.name);
    let mut missing = names.filter(|name| !given.iter().any(|(key, _)| key == *name));
    missing.next().cloned()
}

/// Ends and reaps processes that a killed CRIU left behind: the root, a child of this process, and
/// those that become its children if it is process 1. One that hangs in a system call ends later,
/// without another instruction.
fn kill_remains(manifest: &Manifest) {
    let mut pids = manifest.pids.clone();
    if is_own_child(manifest.root_pid)
        && let Some(tree) = ProcessTree::read(manifest.root_pid)
    {
        tree.kill();
        // CRIU's helpers have numbers as well.
        pids.extend(tree.pids);
    }
    let deadline = Deadline::after(REAP_GRACE);
    while pids.iter().any(|pid| exists(*pid)) && deadline.remaining().is_some() {
        for pid in &pids {
            // The caller may reap all children itself.
            let _ = waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG);
        }
        std::thread::sleep(REAP_INTERVAL);
    }
}
