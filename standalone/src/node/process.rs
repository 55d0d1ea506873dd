//! One running container: the bubblewrap process, a handle on the container's PID 1, its output
//! and its memory group.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::bwrap::{Descriptors, Sandbox};
use super::cgroup::Group;
use super::launcher::{Launcher, spawn};
use super::logs::LogWriter;

/// Everything needed for one start.
#[derive(Debug)]
pub(crate) struct Launch {
    pub bwrap: PathBuf,
    pub sandbox: Sandbox,
    pub network: Option<Arc<OwnedFd>>,
    pub group: Option<Group>,
    pub log: LogWriter,
}

/// A started container.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    init: OwnedFd,
    status: Lines<BufReader<pipe::Receiver>>,
    output: JoinHandle<io::Result<()>>,
    group: Option<Group>,
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub code: i32,
    pub out_of_memory: bool,
    /// Whether the command was executed at all, or bubblewrap failed before.
    pub executed: bool,
}

/// What bubblewrap reports, one JSON document per line.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    child_pid: Option<i32>,
    exit_code: Option<i32>,
}

/// The ends that stay here once bubblewrap runs.
struct Started {
    child: Child,
    gate: PipeWriter,
    status: PipeReader,
    output: PipeReader,
}

impl Process {
    /// Starts bubblewrap, puts the container into its memory group, and lets it execute.
    pub(crate) async fn start(launcher: &Launcher, launch: Launch) -> io::Result<Self> {
        let Launch {
            bwrap,
            sandbox,
            network,
            group,
            log,
        } = launch;
        let Started {
            child,
            mut gate,
            status,
            output,
        } = launcher
            .run(move || start(bwrap, &sandbox, network.as_deref()))
            .await?;
        let output = tokio::spawn(log.copy(receiver(output)?));
        let mut status = BufReader::new(receiver(status)?).lines();
        let pid = first_pid(&mut status).await?;
        let init = pidfd_open(pid, PidfdFlags::empty())?;
        if let Some(group) = &group {
            group.add(pid.as_raw_nonzero().get())?;
        }
        // A container that has failed already has closed its end; `wait` will tell.
        let _ = gate.write_all(b"\n");
        Ok(Self {
            child,
            init,
            status,
            output,
            group,
        })
    }

    /// Sends a signal to PID 1 of the container.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.init, signal) {
            tracing::debug!(%error, "signal not delivered");
        }
    }

    /// Waits for the end; safe to be cancelled and called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        let status = self.child.wait().await?;
        let code = status.code().unwrap_or(137);
        Ok(Exit {
            code,
            out_of_memory: code == 137 && self.group.as_ref().is_some_and(Group::had_oom_kill),
            executed: true,
        })
    }

    /// Collects what is left once `wait` has returned: last output and the verdict whether the
    /// command was ever executed.
    pub(crate) async fn finish(mut self, exit: Exit) -> Exit {
        let mut executed = false;
        while let Ok(Some(line)) = self.status.next_line().await {
            executed |= serde_json::from_str::<Report>(&line)
                .is_ok_and(|report| report.exit_code.is_some());
        }
        match self.output.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "log incomplete"),
            Err(error) => tracing::warn!(%error, "log task failed"),
        }
        // A kill reaches bubblewrap too and it cannot report then.
        Exit {
            executed: executed || exit.code == 137,
            ..exit
        }
    }
}

async fn first_pid(status: &mut Lines<BufReader<pipe::Receiver>>) -> io::Result<Pid> {
    let line = status.next_line().await?;
    let report = line.and_then(|line| serde_json::from_str::<Report>(&line).ok());
    let pid = report.and_then(|report| Pid::from_raw(report.child_pid?));
    pid.ok_or_else(|| io::Error::other("bubblewrap ended before it made the container"))
}

fn receiver(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    let descriptor = OwnedFd::from(pipe);
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    pipe::Receiver::from_owned_fd(descriptor)
}

/// Runs on the launcher thread. Descriptors are inheritable only here, where nothing else forks.
fn start(bwrap: PathBuf, sandbox: &Sandbox, network: Option<&OwnedFd>) -> io::Result<Started> {
    let (gate_in, gate) = io::pipe()?;
    let (status, status_out) = io::pipe()?;
    let (output, output_in) = io::pipe()?;
    let descriptors = Descriptors {
        gate: 0,
        status: status_out.as_raw_fd(),
    };
    let options = memory_file(&sandbox.options(descriptors))?;
    fcntl_setfd(&status_out, FdFlags::empty())?;
    fcntl_setfd(&options, FdFlags::empty())?;
    let mut command = Command::new(bwrap);
    command
        .env_clear()
        .arg("--args")
        .arg(options.as_raw_fd().to_string())
        .arg("--");
    command.args::<Vec<OsString>, _>(sandbox.inner());
    command.stdin(Stdio::from(OwnedFd::from(gate_in)));
    command.stdout(Stdio::from(OwnedFd::from(output_in.try_clone()?)));
    command.stderr(Stdio::from(OwnedFd::from(output_in)));
    let child = spawn(command, network)?;
    Ok(Started {
        child,
        gate,
        status,
        output,
    })
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("bwrap-options", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
