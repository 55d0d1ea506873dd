//! Check that processes of this container can be saved and go on, with a tree of two.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use anyhow::{Context as _, bail};
use checkpoint::{ArchiveKey, Criu, DumpOptions, Limits, RestoreOptions};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::time::Instant;

use super::{ARCHIVE, failed, reserve};
use crate::supervise::reaper;

const TIME_LIMIT: Duration = Duration::from_secs(20);
const MAX_BYTES: u64 = 256 << 20;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Saves a small tree in `directory`, lets it go on and ends it. CRIU is beside this binary, which is
/// process 1 and has no other children.
pub(crate) fn check(directory: &Path) -> anyhow::Result<()> {
    let executor = std::env::current_exe().context("cannot find the running binary")?;
    let criu = Criu {
        program: executor.with_file_name("criu"),
        scratch: directory.to_owned(),
    };
    reserve(0);
    let tree = start_tree(&executor)?;
    let restored = save_and_restore(&criu, &directory.join(ARCHIVE), tree);
    // A tree that was not saved still runs.
    let root = restored.inspect_err(|_| reaper::kill_all_children())?;
    kill_process(root, Signal::TERM).map_err(failed("signal the processes"))?;
    match wait(root)? {
        Some(0) => Ok(()),
        status => bail!("the processes did not go on: exit status {status:?}"),
    }
}

/// Starts a root and its child as the supervisor does, and waits until both have their handlers.
fn start_tree(executor: &Path) -> anyhow::Result<Pid> {
    let mut command = Command::new(executor);
    let command = command.arg("tree-root").args([executor, executor]);
    let command = command.arg("hold").stdin(Stdio::null());
    let tree = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let tree = tree.context("cannot start processes")?;
    let children = format!("/proc/{0}/task/{0}/children", tree.id());
    let command_line = [executor.as_os_str().as_bytes(), b"\0hold\0"].concat();
    let end = Instant::now() + TIME_LIMIT;
    while !has_started(&children, &command_line) {
        if Instant::now() > end {
            bail!("the processes do not start");
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(Pid::from_child(&tree))
}

/// Returns whether the only child runs its program and has a handler of SIGTERM, as its parent has.
/// Before `exec` it has the command line and handlers of its parent. The kernel tells all of this, so that
/// the tree needs no pipe to this process, which would be one to the outside when it is saved.
fn has_started(children: &str, command_line: &[u8]) -> bool {
    let child = fs::read_to_string(children).unwrap_or_default();
    let process = Path::new("/proc").join(child.trim());
    let runs = fs::read(process.join("cmdline")).is_ok_and(|found| found == command_line);
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    runs && has_handler(&status, Signal::TERM)
}

/// Returns whether a process has a handler of a signal, by its `status`.
fn has_handler(status: &str, signal: Signal) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1_u64 << (signal.as_raw() - 1)) != 0)
}

/// Returns the root of the tree that goes on.
fn save_and_restore(criu: &Criu, archive: &Path, tree: Pid) -> anyhow::Result<Pid> {
    // It has no secrets.
    let key = &ArchiveKey::new([0; 32]);
    let limits = Limits {
        time: TIME_LIMIT,
        bytes: MAX_BYTES,
    };
    let dump = DumpOptions {
        key,
        context: &[],
        limits,
        leave_running: false,
        find_watched_files: false,
        sync: false,
        approve: &mut |_| Ok(()),
    };
    let dumped = criu.dump(tree.as_raw_pid(), archive, dump);
    dumped.context("processes cannot be saved")?;
    // Their numbers have to be free. An orphan is a child of process 1.
    reaper::kill_all_children();
    let restore = RestoreOptions {
        key,
        context: &[],
        limits,
        descriptors: Vec::new(),
        approve: &mut |_| Ok(()),
    };
    let restored = criu.restore(archive, restore);
    let restored = restored.context("saved processes do not go on")?;
    Pid::from_raw(restored.pid).context("the restored root has no number")
}

/// Exit status of a child, `None` if a signal ended it. A child that does not end is killed.
fn wait(child: Pid) -> io::Result<Option<i32>> {
    let end = Instant::now() + TIME_LIMIT;
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
            return Ok(status.exit_status());
        }
        if Instant::now() > end {
            kill_process(child, Signal::KILL)?;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_handler_reads_the_mask_of_caught_signals() {
        let status = "SigIgn:\t0000000000004000\nSigCgt:\t0000000000000002\n";
        assert!(!has_handler(status, Signal::TERM));
        assert!(has_handler(status, Signal::INT));
        assert!(has_handler("SigCgt:\t0000000000004002\n", Signal::TERM));
        assert!(!has_handler("", Signal::TERM));
    }
}
