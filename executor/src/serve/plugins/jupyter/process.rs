//! The process of a kernel: started as the sandbox user, watched, interrupted and killed.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use crds::contract::variable;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::output::Cell;
use super::pipe::Pipe;
use crate::serve::group::{Group, Leader};
use crate::serve::shell::Start;

/// Starts `ipykernel`, with the two changes that make the outputs of its process this server's to
/// read: it does not redirect them to itself, and its streams have their numbers. And with one that
/// has it send text with lone surrogates, which is no text, rather than fail to.
const PROGRAM: &str = "\
import sys
sys.path = [entry for entry in sys.path if entry]
import json
from ipykernel import iostream, kernelapp
from jupyter_client.session import Session
begin = Session.__init__
def begin_leniently(self, **more):
    begin(self, **more)
    strict = self.pack
    def pack(message):
        try:
            return strict(message)
        except UnicodeError:
            return json.dumps(message, default=str, ensure_ascii=False).encode('utf-8', 'replace')
    self.pack = pack
Session.__init__ = begin_leniently
defaults = iostream.OutStream.__init__.__kwdefaults__ or {}
if 'watchfd' in defaults:
    defaults['watchfd'] = False
iostream.OutStream.fileno = lambda self: 2 if self.name == 'stderr' else 1
kernelapp.launch_new_instance()
";

/// How a kernel has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// `exit status 1`, `killed by signal 9`
    pub(super) how: String,
    pub(super) last_words: String,
}

#[derive(Debug)]
pub(super) struct Process {
    group: Group,
    ended: watch::Receiver<Option<Ended>>,
    /// Standard output and standard error output.
    pipes: [Pipe; 2],
    _followers: [AbortOnDropHandle<()>; 2],
}

impl Process {
    pub(super) fn start(
        python: &Path,
        connection: &Path,
        start: &Start,
        variables: &[(&'static str, OsString)],
        cell: &watch::Sender<Cell>,
    ) -> io::Result<Self> {
        let mut child = command(python, connection, start, variables).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let pipes = [
            Pipe::new(output.into_owned_fd()?)?,
            Pipe::new(errors.into_owned_fd()?)?,
        ];
        let followers = pipes.clone().map(|pipe| pipe.follow(cell.clone()));
        let (sender, ended) = watch::channel(None);
        let (errors, cell) = (pipes[1].clone(), cell.clone());
        let leader = Leader::new(child, &start.identity)?;
        let group = leader.group();
        tokio::spawn(async move {
            let _ = sender.send(Some(follow(leader, &errors, &cell).await));
        });
        Ok(Self {
            group,
            ended,
            pipes,
            _followers: followers.map(|follower| AbortOnDropHandle::new(tokio::spawn(follower))),
        })
    }

    /// Gives the cell what has been written up to now.
    pub(super) fn drain(&self, cell: &watch::Sender<Cell>) {
        for pipe in &self.pipes {
            pipe.drain(cell);
        }
    }

    /// Sees how it ends.
    pub(super) fn watch(&self) -> watch::Receiver<Option<Ended>> {
        self.ended.clone()
    }

    /// To the kernel and to what it runs in the foreground: Python interrupts a cell, a program that
    /// the cell waits for ends.
    pub(super) async fn interrupt(&self) {
        self.group.signal(Signal::INT).await;
    }

    pub(super) async fn kill(&self) {
        self.group.signal(Signal::KILL).await;
        // Killed: it takes no longer than the system does.
        let _ = self.watch().wait_for(Option::is_some).await;
    }
}

fn command(
    python: &Path,
    connection: &Path,
    start: &Start,
    variables: &[(&'static str, OsString)],
) -> Command {
    let mut command = match start.max_memory_gib {
        None => Command::new(python),
        // As the shell limits itself and what it runs.
        Some(gib) => {
            let mut command = Command::new("sh");
            let limit = format!("ulimit -d {} && exec \"$@\"", gib.saturating_mul(1 << 20));
            command.args(["-c", &limit, "sh"]).arg(python);
            command
        }
    };
    command
        .args(["-c", PROGRAM, "-f"])
        .arg(connection)
        .env_remove(variable::SESSION_API_KEY)
        .env_remove(variable::OH_SESSION_API_KEYS_0)
        // It ends when this process is gone, however that came about.
        .env("JPY_PARENT_PID", std::process::id().to_string())
        .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        .envs(variables.iter().cloned())
        .current_dir(start.existing_dir())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    start.identity.adopt(&mut command);
    command
}

/// Until it has ended, and with it what its cells left in its process group.
async fn follow(mut leader: Leader, errors: &Pipe, cell: &watch::Sender<Cell>) -> Ended {
    let status = leader.follow().await;
    errors.drain(cell);
    Ended {
        how: status.map_or_else(|error| error.to_string(), describe),
        last_words: errors.last_words(),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
