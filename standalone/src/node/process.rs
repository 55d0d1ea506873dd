//! One running container: the bubblewrap process, a handle on the container's PID 1, its output
//! and its memory group.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::bwrap::Sandbox;
use super::cgroup::Group;
use super::last_words::LastWords;
use super::launcher::{Home, Launcher, inside};
use super::logs::LogWriter;

/// How long bubblewrap may take to make a container.
const SETUP_LIMIT: Duration = Duration::from_mins(1);

/// Everything needed for one start.
#[derive(Debug)]
pub(crate) struct Launch {
    pub bwrap: PathBuf,
    pub sandbox: Sandbox,
    pub network: Option<Arc<OwnedFd>>,
    pub group: Option<Group>,
    pub log: LogWriter,
    pub last_words: LastWords,
}

/// A started container.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    init: OwnedFd,
    output: JoinHandle<io::Result<()>>,
    group: Option<Group>,
    last_words: LastWords,
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub code: i32,
    pub out_of_memory: bool,
}

/// The ends that stay here once bubblewrap runs.
struct Started {
    child: Child,
    gate: StdUnixStream,
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
            last_words,
        } = launch;
        let path = log.path().to_owned();
        let started = launcher.run(move |home| start(bwrap, &sandbox, network.as_deref(), home));
        let Started {
            mut child,
            gate,
            output,
        } = started.await?;
        let output = tokio::spawn(log.copy(receiver(output)?));
        let passed = timeout(SETUP_LIMIT, pass_gate(&child, gate, group.as_ref())).await;
        let Ok(Ok(init)) = passed else {
            child.start_kill()?;
            let _ = output.await;
            return Err(io::Error::other(last_line(&path)));
        };
        Ok(Self {
            child,
            init,
            output,
            group,
            last_words,
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
        let killed = self.group.as_ref().is_some_and(Group::had_oom_kill);
        Ok(Exit {
            code,
            out_of_memory: code == 137 && killed,
        })
    }

    /// Collects the last output once `wait` has returned. What the container said of its end.
    pub(crate) async fn finish(self) -> String {
        match self.output.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "log incomplete"),
            Err(error) => tracing::warn!(%error, "log task failed"),
        }
        self.last_words.take()
    }
}

/// Waits for the inner step's word that the container stands, and answers it. Whatever fails
/// before, bubblewrap says in the log.
async fn pass_gate(
    bwrap: &Child,
    gate: StdUnixStream,
    group: Option<&Group>,
) -> io::Result<OwnedFd> {
    gate.set_nonblocking(true)?;
    let mut gate = UnixStream::from_std(gate)?;
    gate.read_u8().await?;
    let pid = only_child(bwrap)?;
    let init = pidfd_open(pid, PidfdFlags::empty())?;
    if let Some(group) = group {
        group.add(pid.as_raw_nonzero().get())?;
    }
    gate.write_u8(b'+').await?;
    Ok(init)
}

/// The container's first process. Its parent has no other, and what bubblewrap could report is
/// a number of another process namespace.
fn only_child(bwrap: &Child) -> io::Result<Pid> {
    let missing = || io::Error::other("the container's first process is gone");
    let id = bwrap.id().ok_or_else(missing)?;
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let first = children.split_whitespace().next();
    first
        .and_then(|pid| Pid::from_raw(pid.parse().ok()?))
        .ok_or_else(missing)
}

fn last_line(log: &std::path::Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines()
        .last()
        .unwrap_or("bubblewrap ended before it made the container")
        .to_owned()
}

fn receiver(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    let descriptor = OwnedFd::from(pipe);
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    pipe::Receiver::from_owned_fd(descriptor)
}

/// Runs on the launcher thread.
fn start(
    bwrap: PathBuf,
    sandbox: &Sandbox,
    network: Option<&OwnedFd>,
    home: &Home,
) -> io::Result<Started> {
    let (gate, inner) = StdUnixStream::pair()?;
    let (output, output_in) = io::pipe()?;
    let options = memory_file(&sandbox.options())?;
    // Inheritable only now and here; it is closed when this function returns.
    fcntl_setfd(&options, FdFlags::empty())?;
    let mut command = Command::new(bwrap);
    command
        .env_clear()
        .arg("--args")
        .arg(options.as_raw_fd().to_string())
        .arg("--");
    command.args::<Vec<OsString>, _>(sandbox.inner());
    command.stdin(Stdio::from(OwnedFd::from(inner)));
    command.stdout(Stdio::from(OwnedFd::from(output_in.try_clone()?)));
    command.stderr(Stdio::from(OwnedFd::from(output_in)));
    // A process that is dropped, because the node ends, is killed.
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    let child = inside(network, home, || command.spawn())?;
    Ok(Started {
        child,
        gate,
        output,
    })
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("bwrap-options", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
