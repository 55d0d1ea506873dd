//! A running kernel: its process and the channels `shell` (requests) and `iopub` (output).
//!
//! The sockets are files in a private directory: other users cannot connect, and no port can be in
//! use.

use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::hmac;
use serde_json::json;
use tokio::io::{AsyncRead, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::message::{self, Conversation};
use super::observation_text;
use super::output::{Cell, Output};
use super::process::{Ended, Process};
use super::until;
use super::zmtp;
use crate::serve::identity::Identity;
use crate::serve::private_dir::{self, PrivateDir};
use crate::serve::shell::LaunchContext;

const CONNECTION: &str = "kernel.json";
/// Interval of checks for sockets that the kernel has yet to create.
const SOCKET_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval between first requests to a kernel whose subscription may not be active yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Time for remaining output of a kernel that has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// Time to write a request to the socket. A healthy kernel reads it at once.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
const BUFFER: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum KernelError {
    #[error("cannot prepare a directory for the kernel: {0}")]
    Private(#[source] io::Error),
    #[error("{0}")]
    Spawn(#[source] io::Error),
    #[error("{}", last_line(.0))]
    Ended(Ended),
    #[error("it did not answer in time")]
    Silent,
    #[error("cannot talk to it: {0}")]
    Io(#[source] io::Error),
}

/// Last line of the output, which usually contains the error.
fn last_line(ended: &Ended) -> String {
    let line = ended.output_tail.lines().last();
    line.map_or_else(|| ended.how.clone(), str::to_owned)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CellOutcome {
    Done,
    TimedOut {
        begun: bool,
    },
    /// The kernel has ended.
    Gone {
        begun: bool,
    },
}

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) process: Process,
    conversation: Conversation,
    requests: OwnedWriteHalf,
    cell: watch::Sender<Cell>,
    private: PrivateDir,
    /// Directory of the shell that the kernel has last changed to.
    directory: Option<PathBuf>,
    _followers: [AbortOnDropHandle<()>; 2],
}

impl Kernel {
    /// Starts a kernel and waits until it responds, at most for `limit`.
    pub(super) async fn start(
        python: &Path,
        start: &LaunchContext,
        limit: Duration,
    ) -> Result<Self, KernelError> {
        let key = private_dir::token().map_err(KernelError::Private)?;
        let text = key.clone();
        let files = move |directory: &Path| vec![(CONNECTION, connection(directory, &text))];
        let private = PrivateDir::create(&start.identity, &start.working_dir, files)
            .await
            .map_err(KernelError::Private)?;
        let connection = private.directory.join(CONNECTION);
        let cell = watch::Sender::new(Cell::default());
        let process = Process::start(python, &connection, start, &cell).await;
        let process = process.map_err(KernelError::Spawn)?;
        let connecting = connect_channels(&process, &private, &start.identity);
        let connected = tokio::time::timeout(limit, connecting).await;
        let channels = match connected.map_err(|_| KernelError::Silent).flatten() {
            Ok(channels) => channels,
            Err(error) => {
                process.kill().await;
                private.remove().await;
                return Err(error);
            }
        };
        let mut kernel = Self::new(process, private, cell, &key, channels);
        let answered = tokio::time::timeout(limit, kernel.wait_until_responding()).await;
        match answered.map_err(|_| KernelError::Silent).flatten() {
            Ok(()) => Ok(kernel),
            Err(error) => {
                kernel.end().await;
                Err(error)
            }
        }
    }

    fn new(
        process: Process,
        private: PrivateDir,
        cell: watch::Sender<Cell>,
        key: &str,
        [shell, iopub]: [UnixStream; 2],
    ) -> Self {
        let session = private.directory.file_name().unwrap_or_default();
        let conversation = Conversation::new(session.to_string_lossy().into_owned(), key);
        let (replies, requests) = shell.into_split();
        let replies = follow(replies, conversation.key.clone(), cell.clone());
        let output = tokio::spawn(follow(iopub, conversation.key.clone(), cell.clone()));
        let end = report_exit(process.ended.clone(), output, cell.clone());
        Self {
            process,
            conversation,
            requests,
            cell,
            private,
            directory: None,
            _followers: [tokio::spawn(replies), tokio::spawn(end)].map(AbortOnDropHandle::new),
        }
    }

    /// Waits until both channels work. The subscription becomes active only after a delay.
    async fn wait_until_responding(&mut self) -> Result<(), KernelError> {
        loop {
            let soon = Some(Instant::now() + RETRY_INTERVAL);
            match self.ask("kernel_info_request", &json!({}), soon).await? {
                CellOutcome::Done => return Ok(()),
                CellOutcome::TimedOut { .. } => {}
                CellOutcome::Gone { .. } => {
                    let lost = || KernelError::Io(io::ErrorKind::ConnectionReset.into());
                    return Err(self.ended().map_or_else(lost, KernelError::Ended));
                }
            }
        }
    }

    /// Runs code in the directory of the shell. Fails if the kernel does not accept requests. One
    /// may be sent in part; the kernel has to be replaced.
    pub(super) async fn run_in(
        &mut self,
        directory: &Path,
        code: &str,
        deadline: Option<Instant>,
    ) -> Result<(CellOutcome, Output), KernelError> {
        if self.directory.as_deref() != Some(directory) {
            let change = observation_text::change_directory(directory);
            let (outcome, output) = self.run(&change, deadline).await?;
            match outcome {
                CellOutcome::Done => self.directory = Some(directory.to_path_buf()),
                CellOutcome::TimedOut { .. } => {
                    return Ok((CellOutcome::TimedOut { begun: false }, output));
                }
                CellOutcome::Gone { .. } => {
                    return Ok((CellOutcome::Gone { begun: false }, output));
                }
            }
        }
        self.run(code, deadline).await
    }

    pub(super) async fn run(
        &mut self,
        code: &str,
        deadline: Option<Instant>,
    ) -> Result<(CellOutcome, Output), KernelError> {
        // `stop_on_error` would abort the cells that are queued behind a failing one.
        let content = json!({"code": code, "silent": false, "store_history": false,
            "user_expressions": {}, "allow_stdin": false, "stop_on_error": false});
        let ending = self.ask("execute_request", &content, deadline).await?;
        // Output of processes that is written, but not read yet, belongs to this cell.
        self.process.drain(&self.cell);
        let mut output = Output::default();
        self.cell.send_modify(|cell| output = cell.output());
        Ok((ending, output))
    }

    async fn ask(
        &mut self,
        kind: &str,
        content: &serde_json::Value,
        deadline: Option<Instant>,
    ) -> Result<CellOutcome, KernelError> {
        let (id, frames) = self.conversation.request(kind, content);
        self.cell
            .send_modify(|cell| *cell = Cell::new(id, cell.gone));
        let sent = zmtp::send(&mut self.requests, &frames);
        // After an error, the exit of the kernel is reported with its reason.
        let _ = tokio::time::timeout(SEND_TIMEOUT, sent)
            .await
            .map_err(|_| KernelError::Silent)?;
        let mut cell = self.cell.subscribe();
        let ended = cell.wait_for(|cell| cell.is_done() || cell.gone);
        let in_time = until(deadline, ended).await.is_some();
        let cell = self.cell.borrow();
        Ok(match (cell.is_done(), in_time) {
            (true, _) => CellOutcome::Done,
            (false, true) => CellOutcome::Gone { begun: cell.begun },
            (false, false) => CellOutcome::TimedOut { begun: cell.begun },
        })
    }

    /// Reason and last output of a kernel that has ended.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.process.ended.borrow().clone()
    }

    pub(super) async fn end(self) {
        self.process.kill().await;
        self.private.remove().await;
    }
}

/// Content of the kernel's connection file.
fn connection(directory: &Path, key: &str) -> Vec<u8> {
    let ip = directory.join("k");
    let text = json!({"transport": "ipc", "ip": ip.to_string_lossy(), "key": key,
        "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        "signature_scheme": "hmac-sha256", "kernel_name": ""});
    text.to_string().into_bytes()
}

/// Connects to the channels as soon as the kernel has created them.
async fn connect_channels(
    process: &Process,
    private: &PrivateDir,
    identity: &Identity,
) -> Result<[UnixStream; 2], KernelError> {
    let mut ended = process.ended.clone();
    let connecting = async {
        let mut shell = connect(private.directory.join("k-1"), identity).await?;
        let mut iopub = connect(private.directory.join("k-2"), identity).await?;
        zmtp::shake_hands(&mut shell, zmtp::READY_DEALER).await?;
        zmtp::shake_hands(&mut iopub, zmtp::READY_SUB).await?;
        // A subscription to everything.
        zmtp::send(&mut iopub, &[vec![1]]).await?;
        Ok([shell, iopub])
    };
    tokio::select! {
        streams = connecting => streams.map_err(KernelError::Io),
        Ok(ended) = ended.wait_for(Option::is_some) => {
            Err(ended.clone().map_or(KernelError::Silent, KernelError::Ended))
        }
    }
}

/// Connects to a socket as soon as the kernel has created it.
async fn connect(path: PathBuf, identity: &Identity) -> io::Result<UnixStream> {
    loop {
        let path = path.clone();
        if let Ok(stream) = identity.run(|| BlockingStream::connect(path)).await? {
            stream.set_nonblocking(true)?;
            return UnixStream::from_std(stream);
        }
        tokio::time::sleep(SOCKET_POLL_INTERVAL).await;
    }
}

async fn follow(stream: impl AsyncRead + Unpin, key: hmac::Key, cell: watch::Sender<Cell>) {
    let mut stream = BufReader::with_capacity(BUFFER, stream);
    while let Ok(frames) = zmtp::receive(&mut stream).await {
        if let Some(message) = message::read(&key, &frames) {
            cell.send_if_modified(|cell| cell.take(message));
        }
    }
}

/// Marks the current cell as gone when the kernel has ended and its output has arrived.
async fn report_exit(
    mut ended: watch::Receiver<Option<Ended>>,
    output: JoinHandle<()>,
    cell: watch::Sender<Cell>,
) {
    let output = AbortOnDropHandle::new(output);
    let _ = ended.wait_for(Option::is_some).await;
    // Child processes of the kernel may keep its sockets open.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, output).await;
    cell.send_modify(|cell| cell.gone = true);
}
