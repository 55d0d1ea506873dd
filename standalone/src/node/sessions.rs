//! Commands in running containers, for `kubectl exec`.

use std::collections::HashMap;
use std::fs::metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::process::{Command, Stdio};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt as _, iter, once, select_all};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::AsyncRead;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio_util::io::ReaderStream;

use super::container_user::ContainerUser;
use super::exec_as::EXEC_AS;
use super::launcher::{HostNamespace, inside};
use super::process::{RunningContainer, inheritable, only_child};
use crate::api::{ContainerPath, ExecCommand, Resize, Session, SessionInput, exit_status};

const BUFFER_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Default)]
pub struct RunningContainers(Arc<Mutex<HashMap<ContainerPath, Weak<RunningContainer>>>>);

impl RunningContainers {
    pub(crate) fn add(&self, path: ContainerPath, container: &Arc<RunningContainer>) {
        let mut containers = self.0.lock();
        containers.retain(|_, known| known.strong_count() > 0);
        containers.insert(path, Arc::downgrade(container));
    }

    pub(crate) fn find(&self, path: &ContainerPath) -> Option<Arc<RunningContainer>> {
        self.0.lock().get(path).and_then(Weak::upgrade)
    }
}

pub(crate) async fn exec(
    container: Arc<RunningContainer>,
    exec: ExecCommand,
) -> io::Result<Session> {
    let terminal = exec.tty.then(|| open_terminal(container.pid)).transpose()?;
    let stdio = match &terminal {
        Some((_, slave)) => {
            [slave.try_clone()?, slave.try_clone()?, slave.try_clone()?].map(Stdio::from)
        }
        None => [exec.stdin, exec.stdout, exec.stderr].map(pipe_or_null),
    };
    let (launcher, has_stdin) = (container.launcher.clone(), exec.stdin);
    let start = move |host: &HostNamespace| start(&container, &exec, stdio, host);
    let mut command = RunningCommand(launcher.run(start).await?);
    let child = &mut command.0;
    let mut input = child.stdin.take().map(|to| Box::new(to) as SessionInput);
    let mut outputs: Vec<_> = child
        .stdout
        .take()
        .map(|from| chunks(1, from))
        .into_iter()
        .collect();
    outputs.extend(child.stderr.take().map(|from| chunks(2, from)));
    let mut resize: Option<Resize> = None;
    if let Some((master, _)) = terminal {
        let to = pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?;
        input = has_stdin.then(|| Box::new(to) as _);
        let from = pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?;
        outputs.push(chunks(1, from));
        resize = Some(Box::new(move |columns, rows| {
            set_size(&master, columns, rows);
        }));
    }
    let status = once(async { exit_status(command.exit().await) });
    Ok(Session {
        inputs: vec![input],
        resize,
        output: select_all(outputs).chain(status).boxed(),
    })
}

fn pipe_or_null(is_wanted: bool) -> Stdio {
    if is_wanted {
        Stdio::piped()
    } else {
        Stdio::null()
    }
}

fn chunks(channel: u8, from: impl AsyncRead + Send + 'static) -> BoxStream<'static, (u8, Bytes)> {
    let parts = ReaderStream::with_capacity(from, BUFFER_BYTES).flat_map(iter);
    parts.map(move |part| (channel, part)).boxed()
}

/// Opens a terminal: the node's end, which does not block, and that of the command. It belongs to
/// the container's own devpts, so that programs find it by name, and to the user of its `init`.
fn open_terminal(init: Pid) -> io::Result<(OwnedFd, OwnedFd)> {
    let process = format!("/proc/{}", init.as_raw_nonzero());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(format!("{process}/root"), flags, Mode::empty())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // `init` can choose another root, in which links lead out of the container.
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let master = openat2(root, "dev/pts/ptmx", flags, Mode::empty(), inside)?;
    unlockpt(&master)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    let owner = metadata(process)?;
    fchown(&slave, Some(owner.uid()), Some(owner.gid()))?;
    Ok((master, slave))
}

fn set_size(terminal: &OwnedFd, ws_col: u16, ws_row: u16) {
    let size = Winsize {
        ws_row,
        ws_col,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // The command may have ended.
    let _ = tcsetwinsize(terminal, size);
}

/// Runs on the launcher thread.
fn start(
    container: &RunningContainer,
    exec: &ExecCommand,
    stdio: [Stdio; 3],
    host: &HostNamespace,
) -> io::Result<Child> {
    let launch = &container.launch;
    let sandbox = &launch.sandbox;
    let init = container.init.try_clone()?;
    let mut command = Command::new(&sandbox.self_exe);
    command.args([EXEC_AS, "--join", &inheritable(&init)?]);
    for group in container.group.paths() {
        command.arg("--cgroup").arg(group);
    }
    if let ContainerUser::Switched(switch) = &sandbox.user {
        let kept = switch.kept_capabilities().bits();
        command.args(["--uid", "0", "--caps", &format!("{kept:x}")]);
    }
    if launch.users.is_some() || matches!(sandbox.user, ContainerUser::Mapped { .. }) {
        command.arg("--join-user");
    }
    command
        .arg("--")
        .args(sandbox.inner("--session", &exec.command));
    command
        .env_clear()
        .envs(exec.tty.then_some(("TERM", "xterm")));
    command.envs(sandbox.environment.iter().cloned());
    let [input, output, errors] = stdio;
    command.stdin(input).stdout(output).stderr(errors);
    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    inside(launch.network.as_deref(), host, || command.spawn())
}

/// Process that has joined a container, with the command as its only child. A drop kills both.
#[derive(Debug)]
struct RunningCommand(Child);

impl RunningCommand {
    async fn exit(mut self) -> i32 {
        let status = self.0.wait().await;
        status.ok().and_then(|status| status.code()).unwrap_or(137)
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if let Ok(command) = only_child(&self.0) {
            let _ = kill_process(command, Signal::KILL);
            let _ = kill_process_group(command, Signal::KILL);
        }
    }
}
