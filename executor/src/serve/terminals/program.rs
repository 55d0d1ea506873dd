//! Program of a terminal, on a pseudo-terminal or on three pipes. It runs as the sandbox user.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use pty_process::Size;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWrite;
use tokio::process::{Child, Command};

use super::exit::Exit;
use super::message::TerminalSize;
use super::outputs::Outputs;
use super::request::TerminalRequest;
use crate::serve::identity::Identity;
use crate::serve::launch_dir;
use crate::serve::process_group;
use crate::serve::process_tree::{OwnedChild, ProcessSet, register_child};
use crate::serve::shell::{LaunchContext, ShellError};

/// Time between the hang-up and SIGKILL.
const HANG_UP_GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum ProgramError {
    #[error("cannot find the shell of the user: {0}")]
    Shell(#[from] ShellError),
    #[error("working_directory {0} is not a directory that the user can enter")]
    Directory(PathBuf),
    #[error("cannot start {program:?}: {cause}")]
    Start { program: String, cause: io::Error },
    #[error("cannot open a terminal: {0}")]
    Terminal(#[source] pty_process::Error),
    #[error("cannot read the file system: {0}")]
    FileSystem(#[source] io::Error),
}

impl ProgramError {
    /// True if another attempt may succeed: the sandbox lacks processes, memory or terminals.
    pub(in crate::serve) fn is_temporary(&self) -> bool {
        match self {
            Self::Terminal(_) | Self::FileSystem(_) => true,
            Self::Start { cause, .. } => matches!(
                cause.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory
            ),
            Self::Shell(_) | Self::Directory(_) => false,
        }
    }
}

pub(super) type Input = Box<dyn AsyncWrite + Send + Unpin>;

#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    pid: Pid,
    identity: Arc<Identity>,
    /// Its pseudo-terminal, to ask for the foreground group.
    control: Option<OwnedFd>,
    _owned: OwnedChild,
}

/// Ends of a program's streams.
#[derive(derive_more::Debug)]
pub(super) struct Streams {
    #[debug(skip)]
    pub(super) input: Input,
    pub(super) outputs: Outputs,
    /// Sets the size of the terminal.
    pub(super) control: Option<OwnedFd>,
}

/// Program and arguments that a request means.
pub(super) async fn resolve_command(
    request: &TerminalRequest,
    context: &LaunchContext,
) -> Result<Vec<String>, ProgramError> {
    if let Some(words) = &request.command {
        return Ok(words.clone());
    }
    let shell = context.login_shell().await?;
    Ok(vec![shell.to_string_lossy().into_owned()])
}

impl Program {
    pub(super) async fn start(
        words: &[String],
        request: &TerminalRequest,
        context: &LaunchContext,
    ) -> Result<(Self, Streams), ProgramError> {
        let [name, arguments @ ..] = words else {
            return Err(start_error("", io::ErrorKind::InvalidInput.into()));
        };
        let directory = working_directory(request, context).await?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .current_dir(&directory)
            .kill_on_drop(true);
        context.apply_to(&mut command);
        if request.tty {
            command.env("TERM", "xterm-256color");
        }
        command.envs(&request.environment);
        // The paths are tried on another thread: the start blocks this one.
        let program = directory.join(name);
        let tried = context.launch_dir(&program).await;
        tried.map_err(ProgramError::FileSystem)?;
        let (child, streams) = if request.tty {
            spawn_on_terminal(command, request.size, &context.identity)
        } else {
            spawn_on_pipes(command)
        }?;
        let owned = register_child(child.id());
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let control = streams.control.as_ref().map(OwnedFd::try_clone);
        let program = Self {
            pid: pid.ok_or_else(|| start_error(name, io::ErrorKind::NotFound.into()))?,
            child,
            identity: Arc::clone(&context.identity),
            control: control.transpose().map_err(ProgramError::FileSystem)?,
            _owned: owned,
        };
        Ok((program, streams))
    }

    /// Waits for the end of the program itself; programs in its background go on. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Exit {
        let ended = self.child.wait().await;
        ended.map_or(Exit::Code(-1), Exit::from_status)
    }

    /// Hangs up, and kills what is left of the program and its descendants.
    pub(super) async fn end(&mut self) -> Exit {
        let foreground = self.control.as_ref();
        let foreground = foreground.and_then(|tty| rustix::termios::tcgetpgrp(tty).ok());
        let foreground = foreground.filter(|group| *group != self.pid);
        for group in [Some(self.pid), foreground].into_iter().flatten() {
            process_group::send(&self.identity, group, Signal::HUP).await;
        }
        let ended = process_group::wait_exited(self.pid);
        // Until it is reaped, its number is not another's.
        let _ = tokio::time::timeout(HANG_UP_GRACE, ended).await;
        let all = match self.control {
            Some(_) => ProcessSet::Session(self.pid),
            None => ProcessSet::Group(self.pid),
        };
        all.kill_all(&self.identity).await;
        self.wait().await
    }
}

/// The directory of the request, or that of the sandbox.
async fn working_directory(
    request: &TerminalRequest,
    context: &LaunchContext,
) -> Result<PathBuf, ProgramError> {
    let Some(asked) = &request.working_directory else {
        let directory = context.launch_dir("".as_ref()).await;
        return directory.map_err(ProgramError::FileSystem);
    };
    let directory = context.working_dir.join(asked);
    let exists = launch_dir::is_dir(&context.identity, directory.clone()).await;
    if exists.map_err(ProgramError::FileSystem)? {
        Ok(directory)
    } else {
        Err(ProgramError::Directory(directory))
    }
}

fn start_error(program: &str, cause: io::Error) -> ProgramError {
    ProgramError::Start {
        program: program.to_owned(),
        cause,
    }
}

fn spawn_on_terminal(
    command: Command,
    size: TerminalSize,
    identity: &Identity,
) -> Result<(Child, Streams), ProgramError> {
    let name = name_of(&command);
    let (pty, pts) = pty_process::open().map_err(ProgramError::Terminal)?;
    pty.resize(Size::new(size.height, size.width))
        .map_err(ProgramError::Terminal)?;
    let control = pty.as_fd().try_clone_to_owned();
    let control = control.map_err(ProgramError::FileSystem)?;
    // Without ownership, programs can use the terminal but not open it by name.
    let _ = identity.own_terminal(&pts);
    let spawned = pty_process::Command::from(command).spawn(pts);
    let child = spawned.map_err(|error| match error {
        pty_process::Error::Io(cause) => start_error(&name, cause),
        other => ProgramError::Terminal(other),
    })?;
    let (output, input) = pty.into_split();
    let streams = Streams {
        input: Box::new(input),
        outputs: Outputs::of_terminal(output),
        control: Some(control),
    };
    Ok((child, streams))
}

fn spawn_on_pipes(mut command: Command) -> Result<(Child, Streams), ProgramError> {
    let name = name_of(&command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().map_err(|cause| start_error(&name, cause))?;
    let Some(input) = child.stdin.take() else {
        return Err(start_error(&name, io::ErrorKind::BrokenPipe.into()));
    };
    let streams = Streams {
        input: Box::new(input),
        outputs: Outputs::of_pipes(child.stdout.take(), child.stderr.take()),
        control: None,
    };
    Ok((child, streams))
}

fn name_of(command: &Command) -> String {
    command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned()
}
