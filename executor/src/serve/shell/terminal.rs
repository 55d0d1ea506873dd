//! One bash process on its pseudo-terminal, and a picture of what it has written.
//!
//! The shell's first file makes it report every prompt and every start of a command in escape
//! sequences that only this server can read; one task turns the stream into a `Screen`.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crds::contract::variable;
use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::grid::SIZE;
use super::rc;
use super::scanner::Scanner;
use super::scratch::Scratch;
use super::screen::Screen;
use crate::serve::children::{self, Kept};
use crate::serve::identity::Identity;
use crate::serve::private;
use crate::serve::processes::Family;

/// For the user's own start-up files.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// Output of a shell that has ended may still be on its way.
const DRAIN: Duration = Duration::from_millis(50);
/// A program that does not read its input must not block the server.
const TYPE_TIMEOUT: Duration = Duration::from_secs(5);
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum ShellError {
    #[error("cannot prepare the shell's directory")]
    Scratch(#[source] io::Error),
    #[error("cannot open a terminal")]
    Terminal(#[source] pty_process::Error),
    #[error("cannot start bash")]
    Spawn(#[source] pty_process::Error),
    #[error("bash did not come up")]
    Start,
    #[error("cannot reach the shell")]
    Type(#[source] io::Error),
}

/// What a shell is started with.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Start {
    pub(in crate::serve) identity: Arc<Identity>,
    pub(in crate::serve) working_dir: PathBuf,
    pub(in crate::serve) max_memory_gib: Option<u64>,
}

impl Start {
    /// The working directory if it is there, and one that is there if not.
    pub(in crate::serve) fn existing_dir(&self) -> &Path {
        let exists = self.working_dir.is_dir();
        if exists {
            &self.working_dir
        } else {
            Path::new("/")
        }
    }
}

#[derive(Debug)]
pub(super) struct Terminal {
    session: Pid,
    screen: watch::Sender<Screen>,
    input: OwnedWritePty,
    control: OwnedFd,
    modes: Option<Termios>,
    scratch: Scratch,
    identity: Arc<Identity>,
    follower: JoinHandle<()>,
    /// How many commands have been handed over.
    commands: u64,
}

impl Terminal {
    pub(super) async fn start(start: &Start, main: bool) -> Result<Self, ShellError> {
        let token = private::token().map_err(ShellError::Scratch)?;
        let name = private::token().map_err(ShellError::Scratch)?;
        let (rc_token, fallback) = (token.clone(), start.working_dir.as_path());
        let options = rc::Options {
            main,
            max_memory_gib: start.max_memory_gib,
        };
        let rc = move |directory: &Path| rc::text(&rc_token, directory, options);
        let scratch = Scratch::create(&start.identity, &name[..16], fallback, rc)
            .await
            .map_err(ShellError::Scratch)?;
        let (pty, pts) = pty_process::open().map_err(ShellError::Terminal)?;
        pty.resize(Size::new(SIZE, SIZE))
            .map_err(ShellError::Terminal)?;
        let control = pty.as_fd().try_clone_to_owned();
        // Without it programs can still use the terminal, only not open it by its name.
        let _ = start.identity.own_terminal(&pts);
        let child = command(start, &scratch.rc())
            .spawn(pts)
            .map_err(ShellError::Spawn)?;
        let kept = children::keep(child.id());
        let replies = pty.as_fd().try_clone_to_owned();
        let replies = replies.map_err(ShellError::Scratch)?;
        let session = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (output, input) = pty.into_split();
        let screen = watch::Sender::new(Screen::new());
        let follower = Follower {
            output,
            replies,
            scanner: Scanner::new(&token),
            screen: screen.clone(),
        };
        let follower = tokio::spawn(follower.follow(child, kept));
        let mut terminal = Self {
            session: session.ok_or(ShellError::Start)?,
            screen,
            input,
            control: control.map_err(ShellError::Scratch)?,
            modes: None,
            scratch,
            identity: Arc::clone(&start.identity),
            follower,
            commands: 0,
        };
        terminal.come_up().await?;
        Ok(terminal)
    }

    async fn come_up(&mut self) -> Result<(), ShellError> {
        let mut screen = self.watch();
        let up = screen.wait_for(|screen| screen.at_prompt || screen.ended.is_some());
        match tokio::time::timeout(START_TIMEOUT, up).await {
            Ok(Ok(screen)) if screen.ended.is_none() => {}
            _ => return Err(ShellError::Start),
        }
        self.change(Screen::clear);
        self.modes = rustix::termios::tcgetattr(&self.control).ok();
        Ok(())
    }

    pub(super) fn watch(&self) -> watch::Receiver<Screen> {
        self.screen.subscribe()
    }

    pub(super) fn screen(&self) -> watch::Ref<'_, Screen> {
        self.screen.borrow()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Screen)) {
        self.screen.send_modify(change);
    }

    /// Runs a whole command at the prompt; the number that the shell will report with its end.
    pub(super) async fn run(&mut self, command: &str) -> Result<u64, ShellError> {
        // Bash variables cannot hold a zero byte.
        let command = command.replace('\0', "");
        let put = self.scratch.put_command(command).await;
        put.map_err(ShellError::Scratch)?;
        self.restore_modes();
        self.commands += 1;
        self.type_in(&rc::run(self.commands)).await?;
        Ok(self.commands)
    }

    /// Types bytes, as at a keyboard.
    pub(super) async fn type_in(&mut self, bytes: &[u8]) -> Result<(), ShellError> {
        // Until it says otherwise: it may be asking for the rest of a command.
        self.change(|screen| screen.at_prompt = false);
        match tokio::time::timeout(TYPE_TIMEOUT, self.input.write_all(bytes)).await {
            Ok(outcome) => outcome.map_err(ShellError::Type),
            Err(_) => Ok(()),
        }
    }

    /// A program may have left the terminal in a state in which no line can be typed.
    fn restore_modes(&self) {
        if let Some(modes) = &self.modes {
            // Worst case the next command fails visibly.
            let _ = rustix::termios::tcsetattr(&self.control, OptionalActions::Now, modes);
        }
    }

    /// Ends the shell and all of its session.
    pub(super) async fn close(self) {
        let family = Family::Session(self.session);
        family.end(&self.identity).await;
        self.retire().await;
    }

    /// Lets go of a shell that has ended; its background jobs go on.
    pub(super) async fn retire(self) {
        let _ = tokio::time::timeout(DRAIN * 4, self.follower).await;
        self.scratch.remove().await;
    }
}

/// Turns the shell's output into the screen until the shell has ended.
struct Follower {
    output: OwnedReadPty,
    replies: OwnedFd,
    scanner: Scanner,
    screen: watch::Sender<Screen>,
}

impl Follower {
    async fn follow(mut self, mut child: Child, kept: Kept) {
        let mut buffer = vec![0; 16 << 10];
        let ended = loop {
            tokio::select! {
                ended = child.wait() => break ended,
                read = self.output.read(&mut buffer) => match read {
                    Ok(count @ 1..) => self.take(&buffer[..count]),
                    // Nobody has the terminal open any more.
                    Ok(0) | Err(_) => break child.wait().await,
                },
            }
        };
        drop(kept);
        // Background jobs may go on writing for ever.
        let rest = async {
            while let Ok(count @ 1..) = self.output.read(&mut buffer).await {
                self.take(&buffer[..count]);
            }
        };
        let _ = tokio::time::timeout(DRAIN, rest).await;
        let code = ended.map_or(-1, exit_code);
        self.screen.send_modify(|screen| screen.ended = Some(code));
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut replies = Vec::new();
        self.screen.send_modify(|screen| {
            screen.take(bytes, &mut self.scanner);
            replies = screen.text.take_replies();
        });
        if !replies.is_empty() {
            // Does not wait: a program that asks and does not read gets no answer.
            let _ = rustix::io::write(&self.replies, &replies);
        }
    }
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).unwrap_or(-1)
}

fn command(start: &Start, rc: &Path) -> pty_process::Command {
    let mut command = tokio::process::Command::new("bash");
    command
        .args(["--noediting", "--rcfile"])
        .arg(rc)
        .arg("-i")
        .env("TERM", "xterm-256color")
        // The agent has no use for the key to its own sandbox.
        .env_remove(variable::SESSION_API_KEY)
        .env_remove(variable::OH_SESSION_API_KEYS_0)
        .env_remove("PROMPT_COMMAND")
        .current_dir(start.existing_dir())
        .kill_on_drop(true);
    start.identity.adopt(&mut command);
    command.into()
}
