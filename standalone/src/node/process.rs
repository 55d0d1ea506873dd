//! Running container: the bubblewrap process, a handle on the container's PID 1, its output and its
//! cgroup.

use std::fs::File;
use std::io::{self, PipeReader, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::fchown;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Command;
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

use super::BWRAP;
use super::bwrap::BwrapSpec;
use super::cgroup::ContainerCgroup;
use super::container_mounts;
use super::container_user::ContainerUser;
use super::exec_as::EXEC_AS;
use super::image::Image;
use super::kept_root::KeptRoot;
use super::launcher::{HostNamespace, Launcher, inside};
use super::logs::{LogWriter, last_line};
use super::seccomp;
use super::termination_message::TerminationMessage;
use super::user_namespace::{MappedMounts, MountAttributes, UserNamespace};

const SETUP_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone)]
pub(crate) struct LaunchSpec {
    pub sandbox: BwrapSpec,
    pub network: Option<Arc<OwnedFd>>,
    /// User namespace of the container, if the node is root and the machine supports it.
    pub users: Option<Arc<UserNamespace>>,
    /// Keeps the layers of a pulled image while the container runs.
    #[expect(dead_code, reason = "held, not read")]
    pub image: Image,
    /// The root is one that the node keeps.
    pub keeps_root: bool,
    /// Signal that asks the container to end.
    pub stop_signal: Signal,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub container: Arc<RunningContainer>,
    child: Child,
    output: JoinHandle<io::Result<()>>,
    termination_message: TerminationMessage,
    kept: Option<KeptRoot>,
}

/// Running container, as needed to enter it.
#[derive(Debug)]
pub(crate) struct RunningContainer {
    pub launcher: Launcher,
    pub launch: LaunchSpec,
    /// First process, as a descriptor, and its number, which is reused some time after its end.
    pub init: OwnedFd,
    pub pid: Pid,
    pub group: ContainerCgroup,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit {
    pub code: i32,
    pub out_of_memory: bool,
}

/// Handles of a started bubblewrap.
struct StartedProcess {
    child: Child,
    gate: StdUnixStream,
    output: PipeReader,
    mounts: MappedMounts,
}

impl Process {
    /// Starts bubblewrap, moves the container into its cgroup, and lets it execute.
    pub(crate) async fn start(
        launcher: &Launcher,
        launch: LaunchSpec,
        group: ContainerCgroup,
        log: LogWriter,
        termination_message: TerminationMessage,
        kept: Option<KeptRoot>,
    ) -> io::Result<Self> {
        let path = log.path().to_owned();
        let StartedProcess {
            mut child,
            gate,
            output,
            mounts,
        } = {
            let launch = launch.clone();
            launcher.run(|host| launch.start(host)).await?
        };
        let output = tokio::spawn(log.copy(receiver(output)?));
        if let Some(kept) = &kept
            && let Err(error) = kept.record_start().await
        {
            tracing::warn!(%error, "start not recorded in a kept root");
        }
        let passed = timeout(SETUP_TIMEOUT, open_start_gate(&child, gate, &group)).await;
        // bubblewrap has its own copies by now.
        let unmount = move |_: &HostNamespace| {
            drop(mounts);
            Ok(())
        };
        launcher.run(unmount).await?;
        let Ok(Ok((pid, init))) = passed else {
            child.start_kill()?;
            let _ = output.await;
            let line = last_line(&path);
            let line = line.unwrap_or("bubblewrap ended before it made the container".to_owned());
            return Err(io::Error::other(line));
        };
        kept.iter().for_each(KeptRoot::settle);
        let container = RunningContainer {
            launcher: launcher.clone(),
            launch,
            init,
            pid,
            group,
        };
        Ok(Self {
            container: Arc::new(container),
            child,
            output,
            termination_message,
            kept,
        })
    }

    /// Asks the container to end, by the signal of its image.
    pub(crate) fn stop(&self) {
        self.signal(self.container.launch.stop_signal);
    }

    /// Sends a signal to PID 1 of the container.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Err(error) = pidfd_send_signal(&self.container.init, signal) {
            tracing::debug!(%error, "signal not delivered");
        }
    }

    /// Waits for the exit. Cancel-safe; can be called again.
    pub(crate) async fn wait(&mut self) -> io::Result<Exit> {
        let code = self.child.wait().await?.code().unwrap_or(137);
        Ok(Exit {
            code,
            out_of_memory: code == 137 && self.container.group.had_oom_kill(),
        })
    }

    /// Collects the remaining output after `wait` has returned, and releases a kept root. Returns
    /// the termination message.
    pub(crate) async fn finish(self) -> String {
        match self.output.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "log incomplete"),
            Err(error) => tracing::warn!(%error, "log task failed"),
        }
        if let Some(kept) = self.kept {
            match self.container.init.try_clone() {
                Ok(init) => kept.release(init).await,
                Err(error) => tracing::warn!(%error, "kept root not flushed"),
            }
        }
        self.termination_message.take()
    }
}

/// Waits for the inner step's report and permits it to continue. Bubblewrap logs earlier failures.
async fn open_start_gate(
    bwrap: &Child,
    gate: StdUnixStream,
    group: &ContainerCgroup,
) -> io::Result<(Pid, OwnedFd)> {
    gate.set_nonblocking(true)?;
    let mut gate = UnixStream::from_std(gate)?;
    gate.read_u8().await?;
    let pid = only_child(bwrap)?;
    let init = pidfd_open(pid, PidfdFlags::empty())?;
    group.add(pid.as_raw_nonzero().get())?;
    gate.write_u8(b'+').await?;
    Ok((pid, init))
}

/// First process in the container; the parent's own report would be of another PID namespace.
pub(crate) fn only_child(parent: &Child) -> io::Result<Pid> {
    let missing = || io::Error::other("the container's first process is gone");
    let id = parent.id().ok_or_else(missing)?;
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let mut children = children.split_whitespace();
    let first = children
        .next()
        .and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    first.ok_or_else(missing)
}

fn receiver(pipe: PipeReader) -> io::Result<pipe::Receiver> {
    let descriptor = OwnedFd::from(pipe);
    rustix::io::ioctl_fionbio(&descriptor, true)?;
    pipe::Receiver::from_owned_fd(descriptor)
}

impl LaunchSpec {
    /// Runs on the launcher thread.
    fn start(mut self, host: &HostNamespace) -> io::Result<StartedProcess> {
        let (gate, inner) = StdUnixStream::pair()?;
        let (output, output_in) = io::pipe()?;
        // Programs open it by name (`/dev/stdout`), as does CRIU.
        if let ContainerUser::Switched(switch) = &self.sandbox.user {
            let outside = |id| self.users.as_ref().map_or(id, |users| users.outside(id));
            fchown(
                &output_in,
                Some(outside(switch.uid)),
                Some(outside(switch.gid)),
            )?;
        }
        let mut mounts = MappedMounts::default();
        let users = self.users.as_deref();
        let namespace = users.map(|users| users.descriptor().try_clone_to_owned());
        let namespace = namespace.transpose()?;
        let mut command = Command::new(BWRAP);
        if let (Some(users), Some(namespace)) = (users, &namespace) {
            let number = inheritable(namespace)?;
            command = Command::new(&self.sandbox.self_exe);
            command.args([EXEC_AS, "--user-namespace", &number]);
            if self.sandbox.user.filter().is_none() {
                command.arg("--deny-user-namespaces");
            }
            command.args(["--", BWRAP]);
            let exe = &mut self.sandbox.self_exe;
            users.map(exe, MountAttributes::READ_ONLY, &mut mounts)?;
        }
        container_mounts::make(&mut self.sandbox, users, self.keeps_root, &mut mounts)?;
        let options = memory_file(&self.sandbox.options())?;
        let filter = self.sandbox.user.filter().map(seccomp::program);
        let filter = filter.map(|program| memory_file(&program)).transpose()?;
        command.env_clear();
        if let Some(filter) = &filter {
            command.args(["--seccomp", &inheritable(filter)?]);
        }
        command.args(["--args", &inheritable(&options)?, "--"]);
        command.args(self.sandbox.inner("--gate", &self.sandbox.command));
        command.stdin(OwnedFd::from(inner));
        command.stdout(output_in.try_clone()?);
        command.stderr(output_in);
        // Kills the process if the handle is dropped.
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        let child = inside(self.network.as_deref(), host, || command.spawn())?;
        Ok(StartedProcess {
            child,
            gate,
            output,
            mounts,
        })
    }
}

/// Lets only this child inherit a descriptor, which the caller closes; its number.
pub(crate) fn inheritable(descriptor: impl AsFd) -> io::Result<String> {
    fcntl_setfd(&descriptor, FdFlags::empty())?;
    Ok(descriptor.as_fd().as_raw_fd().to_string())
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("bwrap-options", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}
