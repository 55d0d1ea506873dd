//! Process of a kernel, which runs as the sandbox user, and its outputs.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::process::Signal;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::output::Cell;
use crate::serve::process_group::{GroupLeader, ProcessGroup};
use crate::serve::shell::LaunchContext;

/// Starts `ipykernel` with three changes. It does not redirect its standard outputs, and its
/// streams have their file numbers, so that the server can read both. It sends text with lone
/// surrogates with replacement characters instead of failing.
const PROGRAM: &str = include_str!("../../../../scripts/kernel.py");

/// Bytes of the latest output that are kept as the reason of an exit.
const MAX_TAIL_BYTES: usize = 4 << 10;
const BUFFER: usize = 16 << 10;

/// End of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    /// `exit status 1`, `killed by signal 9`
    pub(super) how: String,
    pub(super) output_tail: String,
}

#[derive(Debug)]
pub(super) struct Process {
    group: ProcessGroup,
    pub(super) ended: watch::Receiver<Option<Ended>>,
    /// Standard output and standard error.
    pipes: [Pipe; 2],
    _followers: [AbortOnDropHandle<()>; 2],
}

impl Process {
    pub(super) async fn start(
        python: &Path,
        connection: &Path,
        start: &LaunchContext,
        cell: &watch::Sender<Cell>,
    ) -> io::Result<Self> {
        let directory = start.launch_dir(python).await?;
        let mut child = command(python, connection, start, &directory).spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let pipes = [
            Pipe::new(output.into_owned_fd()?)?,
            Pipe::new(errors.into_owned_fd()?)?,
        ];
        let followers = pipes.clone().map(|pipe| pipe.follow(cell.clone()));
        let (sender, ended) = watch::channel(None);
        let (errors, cell) = (pipes[1].clone(), cell.clone());
        let leader = GroupLeader::new(child, &start.identity)?;
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

    /// Adds the output so far to the cell.
    pub(super) fn drain(&self, cell: &watch::Sender<Cell>) {
        for pipe in &self.pipes {
            pipe.drain(cell);
        }
    }

    /// Interrupts the kernel and its foreground processes: Python aborts the cell.
    pub(super) async fn interrupt(&self) {
        self.group.signal(Signal::INT).await;
    }

    pub(super) async fn kill(&self) {
        self.group.signal(Signal::KILL).await;
        // Returns soon: SIGKILL cannot be ignored.
        let _ = self.ended.clone().wait_for(Option::is_some).await;
    }
}

fn command(python: &Path, connection: &Path, start: &LaunchContext, directory: &Path) -> Command {
    let mut command = Command::new(python);
    start.apply_to(&mut command);
    command
        .args(["-c", PROGRAM, "-f"])
        .arg(connection)
        // ipykernel exits when this process is gone, also after SIGKILL.
        .env("JPY_PARENT_PID", std::process::id().to_string())
        .env("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Waits until the kernel and the rest of its process group have ended.
async fn follow(mut leader: GroupLeader, errors: &Pipe, cell: &watch::Sender<Cell>) -> Ended {
    let status = leader.wait().await;
    errors.drain(cell);
    Ended {
        how: status.map_or_else(|error| error.to_string(), describe),
        output_tail: errors.output_tail(),
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// Standard output or error of the kernel and its children. The server reads it, because a kernel's
/// own thread may deliver it after the end of the cell, to which the content of the pipe belongs.
#[derive(Debug, Clone)]
struct Pipe(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    end: Receiver,
    state: Mutex<DecoderState>,
}

#[derive(Debug, Default)]
struct DecoderState {
    /// Bytes of an incomplete character.
    part: Vec<u8>,
    output_tail: String,
}

impl Pipe {
    fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            end: Receiver::from_owned_fd(end)?,
            state: Mutex::default(),
        })))
    }

    /// Adds output to the current cell until the last writer has closed the pipe.
    async fn follow(self, cell: watch::Sender<Cell>) {
        while let Ok(()) = self.0.end.readable().await {
            let mut ended = false;
            let _ = self.0.end.try_io(|| {
                ended = self.drain(&cell);
                // The pipe is empty: wait.
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            });
            if ended {
                return;
            }
        }
    }

    /// Reads the content of the pipe. Returns true if its last writer is gone.
    fn drain(&self, cell: &watch::Sender<Cell>) -> bool {
        let mut buffer = [0; BUFFER];
        loop {
            match rustix::io::read(&self.0.end, &mut buffer) {
                Ok(0) => return true,
                Ok(count) => self.take(&buffer[..count], cell),
                Err(Errno::INTR) => {}
                Err(error) => return error != Errno::AGAIN,
            }
        }
    }

    fn take(&self, bytes: &[u8], cell: &watch::Sender<Cell>) {
        let text = self.0.state.lock().decode(bytes);
        cell.send_if_modified(|cell| {
            cell.text.push(&text);
            false
        });
    }

    fn output_tail(&self) -> String {
        self.0.state.lock().output_tail.trim().to_owned()
    }
}

impl DecoderState {
    fn decode(&mut self, bytes: &[u8]) -> String {
        self.part.extend(bytes);
        let whole = match std::str::from_utf8(&self.part) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.part.len(),
        };
        let rest = self.part.split_off(whole);
        let text = String::from_utf8_lossy(&self.part).into_owned();
        self.part = rest;
        self.output_tail.push_str(&text);
        let excess = self.output_tail.len().saturating_sub(MAX_TAIL_BYTES);
        let excess = self.output_tail.ceil_char_boundary(excess);
        self.output_tail.drain(..excess);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_joins_split_characters() {
        let mut state = DecoderState::default();
        assert_eq!(state.decode(b"a\xe2\x82"), "a");
        assert_eq!(state.decode(b"\xac\xff"), "€\u{fffd}");
        assert_eq!(state.decode(b"\xf0\x9fx"), "\u{fffd}x");
        state.decode("é".repeat(MAX_TAIL_BYTES).as_bytes());
        assert!(state.output_tail.len() <= MAX_TAIL_BYTES);
    }
}
