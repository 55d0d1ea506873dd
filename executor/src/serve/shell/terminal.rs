//! One shell process on its pseudo-terminal, and the `Screen` that its output makes.
//!
//! The start-up file makes it report every prompt and every start of a command in escape
//! sequences with a random token. One task per terminal reads them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::agent_view::AgentView;
use super::bash_rc;
use super::error::ShellError;
use super::grid::SIZE;
use super::launch_context::{LaunchContext, REQUESTED_SHELL};
use super::posix_rc::{self, PosixPrompt};
use super::program::ShellProgram;
use super::prompt_report::PromptReport;
use super::scanner::Scanner;
use super::scratch_dir::{CommandText, ScratchDir};
use super::screen::Screen;
use crate::serve::environment::EnvironmentChanges;
use crate::serve::identity::Identity;
use crate::serve::output_log::OutputLog;
use crate::serve::private_dir;
use crate::serve::process_tree::{OwnedChild, ProcessSet, register_child};

/// Timeout of the user's own start-up files.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Time for a running shell to take an environment. It is idle.
const ENTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the remaining output of a shell that has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Added to the signal in the status of a program that it ended.
const SIGNAL_STATUS: i32 = 128;
/// A program that does not read its input must not block the server.
const TYPE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Terminal {
    session: Pid,
    pub(super) program: ShellProgram,
    pub(super) screen: watch::Sender<Screen>,
    input: OwnedWritePty,
    control: OwnedFd,
    modes: Option<Termios>,
    scratch: ScratchDir,
    identity: Arc<Identity>,
    follower: JoinHandle<()>,
    commands: u64,
    view: Option<Arc<AgentView>>,
}

impl Terminal {
    /// Starts the shell that all commands share, with the log of its output, or another one.
    pub(super) async fn start(
        start: &LaunchContext,
        log: Option<&Arc<OutputLog>>,
    ) -> Result<Self, ShellError> {
        let directory = start.launch_dir(Path::new("")).await;
        let directory = directory.map_err(ShellError::Directory)?;
        let token = private_dir::token().map_err(ShellError::Scratch)?;
        let (rc_token, fallback) = (token.clone(), start.working_dir.as_path());
        let program = start.find_shell(start.variable(REQUESTED_SHELL)).await?;
        let files = start_files(start, &program, rc_token, log.is_some());
        let scratch = ScratchDir::create(&start.identity, fallback, files)
            .await
            .map_err(ShellError::Scratch)?;
        let (pty, pts) = pty_process::open().map_err(ShellError::Terminal)?;
        pty.resize(Size::new(SIZE, SIZE))
            .map_err(ShellError::Terminal)?;
        let control = pty.as_fd().try_clone_to_owned();
        // Without ownership, programs can use the terminal but not open it by name.
        let _ = start.identity.own_terminal(&pts);
        let child = command(start, &program, &directory, &scratch.rc())
            .spawn(pts)
            .map_err(ShellError::Spawn)?;
        let owned = register_child(child.id());
        let replies = pty.as_fd().try_clone_to_owned();
        let replies = replies.map_err(ShellError::Scratch)?;
        let session = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (output, input) = pty.into_split();
        let screen = watch::Sender::new(Screen::new());
        let scanner = Scanner::new(&token);
        let view = log.map(|log| Arc::new(AgentView::new(log, &token)));
        let shown = (screen.clone(), view.clone());
        let following = follow(output, replies, scanner, shown, (child, owned));
        let mut terminal = Self {
            session: session.ok_or(ShellError::Start)?,
            program,
            screen,
            input,
            control: control.map_err(ShellError::Scratch)?,
            modes: None,
            scratch,
            identity: Arc::clone(&start.identity),
            follower: tokio::spawn(following),
            commands: 0,
            view,
        };
        terminal.wait_until_started().await?;
        Ok(terminal)
    }

    async fn wait_until_started(&mut self) -> Result<(), ShellError> {
        let mut screen = self.screen.subscribe();
        let up = screen.wait_for(|screen| screen.at_prompt || screen.ended.is_some());
        match tokio::time::timeout(START_TIMEOUT, up).await {
            Ok(Ok(screen)) if screen.ended.is_none() => {}
            _ => return Err(ShellError::Start),
        }
        self.screen.send_modify(Screen::clear);
        self.modes = rustix::termios::tcgetattr(&self.control).ok();
        Ok(())
    }

    /// The shell and all of its processes.
    pub(super) fn processes(&self) -> ProcessSet {
        ProcessSet::Session(self.session)
    }

    /// Runs a command at the prompt and returns the number that the shell reports at its end.
    pub(super) async fn run(&mut self, command: &str) -> Result<u64, ShellError> {
        // Bash variables cannot hold a zero byte.
        let command = command.replace('\0', "");
        self.commands += 1;
        if let Some(view) = &self.view {
            view.show(&command);
        }
        let killed = |report: &PromptReport| report.exit_code > SIGNAL_STATUS;
        let killed = self.screen.borrow().report.as_ref().is_some_and(killed);
        let (text, line) = if self.program.is_bash() {
            let export_hooks = bash_rc::may_start_shell(&command);
            let line = bash_rc::run_line(self.commands, export_hooks);
            (CommandText::Reserved(command.into_bytes()), line)
        } else {
            let text = posix_rc::command_text(&command);
            (
                CommandText::Exact(text),
                posix_rc::run_line(self.commands, killed),
            )
        };
        let put = self.scratch.write_command(text).await;
        put.map_err(ShellError::Scratch)?;
        self.restore_modes();
        self.type_in(&line).await?;
        Ok(self.commands)
    }

    /// Gives a shell without a command the variables and the directory. It shows neither.
    pub(super) async fn enter(
        &mut self,
        directory: &Path,
        variables: &EnvironmentChanges,
    ) -> Result<(), ShellError> {
        let text = bash_rc::enter_text(directory, variables);
        let file = self.scratch.write_once(text).await;
        let file = file.map_err(ShellError::Scratch)?;
        let id = self.run(&bash_rc::enter_line(&file)).await?;
        let entered = self.wait_until_entered(id).await;
        let removed = self.scratch.remove_file(file).await;
        entered.and(removed.map_err(ShellError::Scratch))
    }

    /// Runs a command without effect in a shell that waits for the first one.
    pub(super) async fn touch(&mut self) -> Result<(), ShellError> {
        let id = self.run(":").await?;
        self.wait_until_entered(id).await
    }

    async fn wait_until_entered(&mut self, id: u64) -> Result<(), ShellError> {
        let mut screen = self.screen.subscribe();
        let is_over = |screen: &Screen| {
            let loaded = screen.report.as_ref().map(|report| report.command_id);
            screen.ended.is_some() || (screen.at_prompt && loaded == Some(id))
        };
        let over = tokio::time::timeout(ENTER_TIMEOUT, screen.wait_for(is_over)).await;
        let Ok(Ok(screen)) = over else {
            return Err(ShellError::Start);
        };
        let entered = screen.report.as_ref().filter(|_| screen.ended.is_none());
        let entered = entered.is_some_and(|report| report.exit_code == 0);
        drop(screen);
        self.screen.send_modify(Screen::clear);
        entered.then_some(()).ok_or(ShellError::Start)
    }

    /// Types bytes, as at a keyboard.
    pub(super) async fn type_in(&mut self, bytes: &[u8]) -> Result<(), ShellError> {
        // Until the next prompt: the shell may ask for the rest of a command.
        self.screen.send_modify(|screen| screen.at_prompt = false);
        match tokio::time::timeout(TYPE_TIMEOUT, self.input.write_all(bytes)).await {
            Ok(outcome) => outcome.map_err(ShellError::Type),
            Err(_) => Ok(()),
        }
    }

    /// Restores the terminal modes, which a program may have left unusable.
    fn restore_modes(&self) {
        if let Some(modes) = &self.modes {
            // If this fails, the next command fails visibly.
            let _ = rustix::termios::tcsetattr(&self.control, OptionalActions::Now, modes);
        }
    }

    /// Ends the shell and all of its session.
    pub(super) async fn close(self) {
        self.processes().kill_all(&self.identity).await;
        self.detach().await;
    }

    /// Releases a shell that has ended. Its background jobs keep running.
    pub(super) async fn detach(self) {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT * 4, self.follower).await;
        self.scratch.remove().await;
    }
}

/// Turns the shell's output into the screen until the shell has ended.
async fn follow(
    mut output: OwnedReadPty,
    replies: OwnedFd,
    mut scanner: Scanner,
    (screen, view): (watch::Sender<Screen>, Option<Arc<AgentView>>),
    (mut child, owned): (Child, OwnedChild),
) {
    let mut take = |bytes: &[u8]| {
        if let Some(view) = &view {
            view.take(bytes);
        }
        let mut pending = Vec::new();
        screen.send_modify(|screen| {
            screen.take(bytes, &mut scanner);
            pending = std::mem::take(&mut screen.text.replies);
        });
        if !pending.is_empty() {
            // Not waited for: a program that does not read its input gets no reply.
            let _ = rustix::io::write(&replies, &pending);
        }
    };
    let mut buffer = vec![0; 16 << 10];
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended,
            read = output.read(&mut buffer) => match read {
                Ok(count @ 1..) => take(&buffer[..count]),
                // No process has the terminal open any more.
                Ok(0) | Err(_) => break child.wait().await,
            },
        }
    };
    drop(owned);
    // Background jobs may keep writing without end.
    let rest = async {
        while let Ok(count @ 1..) = output.read(&mut buffer).await {
            take(&buffer[..count]);
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    let code = ended.ok().and_then(|status| {
        let signal = status.signal().map(|signal| SIGNAL_STATUS + signal);
        status.code().or(signal)
    });
    screen.send_modify(|screen| screen.ended = Some(code.unwrap_or(-1)));
}

/// Makes the start-up files `rc` and `hooks` for their directory.
fn start_files(
    start: &LaunchContext,
    program: &ShellProgram,
    token: String,
    main: bool,
) -> impl FnOnce(&Path) -> [Vec<u8>; 2] + Send + use<> {
    let is_bash = program.is_bash();
    let prompt = PosixPrompt {
        token,
        user: start.identity.username().to_owned(),
        host: host(),
        env_file: start.variable("ENV"),
    };
    move |directory: &Path| {
        if !is_bash {
            return [posix_rc::rc_text(&prompt, directory, main), Vec::new()];
        }
        let hooks = bash_rc::hooks_text(&prompt.token, directory);
        [bash_rc::rc_text(directory, main), hooks].map(String::into_bytes)
    }
}

/// Name of the machine up to the first dot, as in the prompt of bash.
fn host() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn command(
    start: &LaunchContext,
    program: &ShellProgram,
    directory: &Path,
    rc: &Path,
) -> pty_process::Command {
    let mut command = program.command(rc);
    command.current_dir(directory).kill_on_drop(true);
    start.apply_to(&mut command);
    if !program.is_bash() {
        command.env("ENV", rc);
    }
    command.env("TERM", "xterm-256color");
    command.env_remove("PROMPT_COMMAND");
    command.into()
}
