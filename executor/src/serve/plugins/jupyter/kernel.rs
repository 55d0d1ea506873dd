//! A running kernel: its process and the two channels of it that are used, requests and output.
//!
//! Sockets are files in a private directory, not ports: nobody else can reach them, and none can
//! be taken already.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring::hmac;
use serde_json::json;
use tokio::io::{AsyncRead, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::message::{self, Conversation};
use super::output::{Cell, Output};
use super::process::{Ended, Process};
use super::zmtp;
use crate::serve::identity::Identity;
use crate::serve::private::{self, Private};
use crate::serve::shell::Start;

const CONNECTION: &str = "kernel.json";
/// Between looks for sockets that the kernel has yet to make.
const LOOK: Duration = Duration::from_millis(10);
/// After which a kernel that has not answered is asked again: it may not have heard.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Output of a kernel that has ended may still be on its way.
const DRAIN: Duration = Duration::from_millis(500);
/// For the code of a cell, which the kernel takes in at once or not at all.
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
    Talk(#[source] io::Error),
}

/// What a program says last usually says what is wrong.
fn last_line(ended: &Ended) -> String {
    let line = ended.last_words.lines().last();
    line.map_or_else(|| ended.how.clone(), str::to_owned)
}

/// How running a cell came to an end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    /// Its time was over, whether or not the kernel had begun with it.
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
    private: Private,
    _followers: [AbortOnDropHandle<()>; 2],
}

impl Kernel {
    /// Starts one and waits until it answers, within a time.
    pub(super) async fn start(
        python: &Path,
        start: &Start,
        variables: &[(&'static str, OsString)],
        limit: Duration,
    ) -> Result<Self, KernelError> {
        let key = private::token().map_err(KernelError::Private)?;
        let text = key.clone();
        let files = move |directory: &Path| vec![(CONNECTION, connection(directory, &text))];
        let private = Private::create(&start.identity, &start.working_dir, files)
            .await
            .map_err(KernelError::Private)?;
        let connection = private.directory.join(CONNECTION);
        let cell = watch::Sender::new(Cell::default());
        let process = Process::start(python, &connection, start, variables, &cell);
        let process = process.map_err(KernelError::Spawn)?;
        match tokio::time::timeout(limit, meet(&process, &private, &start.identity)).await {
            Ok(Ok(channels)) => {
                let mut kernel = Self::of(process, private, cell, &key, channels);
                let answered = tokio::time::timeout(limit, kernel.greet()).await;
                match answered.map_err(|_| KernelError::Silent).flatten() {
                    Ok(()) => Ok(kernel),
                    Err(error) => {
                        kernel.end().await;
                        Err(error)
                    }
                }
            }
            failed => {
                process.kill().await;
                private.remove().await;
                Err(match failed {
                    Ok(Err(error)) => error,
                    _ => KernelError::Silent,
                })
            }
        }
    }

    fn of(
        process: Process,
        private: Private,
        cell: watch::Sender<Cell>,
        key: &str,
        [shell, iopub]: [UnixStream; 2],
    ) -> Self {
        let session = private.directory.file_name().unwrap_or_default();
        let conversation = Conversation::new(session.to_string_lossy().into_owned(), key);
        let (replies, requests) = shell.into_split();
        let replies = follow(replies, conversation.key(), cell.clone());
        let output = tokio::spawn(follow(iopub, conversation.key(), cell.clone()));
        let end = see_end(process.watch(), output, cell.clone());
        Self {
            process,
            conversation,
            requests,
            cell,
            private,
            _followers: [tokio::spawn(replies), tokio::spawn(end)].map(AbortOnDropHandle::new),
        }
    }

    /// Until both channels carry answers: subscriptions take effect at some later time.
    async fn greet(&mut self) -> Result<(), KernelError> {
        loop {
            let soon = Some(Instant::now() + ASK_AGAIN);
            match self.ask("kernel_info_request", &json!({}), soon).await? {
                Ending::Done => return Ok(()),
                Ending::TimedOut { .. } => {}
                Ending::Gone { .. } => return Err(self.ended()),
            }
        }
    }

    /// Runs code and waits for its end, or until its time is over.
    pub(super) async fn run(
        &mut self,
        code: &str,
        deadline: Option<Instant>,
    ) -> Result<(Ending, Output), KernelError> {
        // A failing cell would otherwise take those with it that wait behind it.
        let content = json!({"code": code, "silent": false, "store_history": false,
            "user_expressions": {}, "allow_stdin": false, "stop_on_error": false});
        let ending = self.ask("execute_request", &content, deadline).await?;
        // Written before the cell ended, but perhaps not read yet.
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
    ) -> Result<Ending, KernelError> {
        let (id, frames) = self.conversation.request(kind, content);
        self.cell
            .send_modify(|cell| *cell = Cell::new(id, cell.gone));
        let sent = zmtp::send(&mut self.requests, &frames);
        match tokio::time::timeout(SEND_TIMEOUT, sent).await {
            // If it failed, the kernel's end is about to be noticed, with the reason.
            Ok(_) => {}
            Err(_) => return Err(KernelError::Silent),
        }
        let mut cell = self.cell.subscribe();
        let ended = cell.wait_for(|cell| cell.is_done() || cell.gone);
        let in_time = match deadline {
            None => ended.await.is_ok(),
            Some(deadline) => tokio::time::timeout_at(deadline, ended).await.is_ok(),
        };
        let cell = self.cell.borrow();
        Ok(match (cell.is_done(), in_time) {
            (true, _) => Ending::Done,
            (false, true) => Ending::Gone { begun: cell.begun },
            (false, false) => Ending::TimedOut { begun: cell.begun },
        })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.process.watch().borrow().is_some()
    }

    /// Why it is gone, for people.
    pub(super) fn how_it_ended(&self) -> String {
        let ended = self.process.watch().borrow().clone();
        ended.map_or_else(|| "connection lost".to_owned(), |ended| ended.how)
    }

    fn ended(&self) -> KernelError {
        match self.process.watch().borrow().clone() {
            Some(ended) => KernelError::Ended(ended),
            None => KernelError::Talk(io::ErrorKind::ConnectionReset.into()),
        }
    }

    pub(super) async fn end(self) {
        self.process.kill().await;
        self.private.remove().await;
    }
}

/// What a kernel is told about its sockets.
fn connection(directory: &Path, key: &str) -> Vec<u8> {
    let ip = directory.join("k");
    let text = json!({"transport": "ipc", "ip": ip.to_string_lossy(), "key": key,
        "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        "signature_scheme": "hmac-sha256", "kernel_name": ""});
    text.to_string().into_bytes()
}

/// Connects to the channels as soon as they are there.
async fn meet(
    process: &Process,
    private: &Private,
    identity: &Identity,
) -> Result<[UnixStream; 2], KernelError> {
    let mut ended = process.watch();
    let path = |name: &str| private.directory.join(name);
    let give_up = GiveUp(Arc::new(AtomicBool::new(false)));
    let connecting = connect([path("k-1"), path("k-2")], identity, Arc::clone(&give_up.0));
    let [mut shell, mut iopub] = tokio::select! {
        streams = connecting => streams.map_err(KernelError::Talk)?,
        Ok(ended) = ended.wait_for(Option::is_some) => {
            let ended = ended.clone();
            return Err(ended.map_or(KernelError::Silent, KernelError::Ended));
        }
    };
    let talk = async {
        zmtp::shake_hands(&mut shell, "DEALER", "sandbox").await?;
        zmtp::shake_hands(&mut iopub, "SUB", "").await?;
        // A subscription to everything.
        zmtp::send(&mut iopub, &[vec![1]]).await
    };
    talk.await.map_err(KernelError::Talk)?;
    Ok([shell, iopub])
}

/// Ends the thread that looks for sockets when nobody wants them any more.
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn connect(
    paths: [PathBuf; 2],
    identity: &Identity,
    give_up: Arc<AtomicBool>,
) -> io::Result<[UnixStream; 2]> {
    let streams = identity.run(move || {
        let [shell, iopub] = paths.map(|path| connect_when_there(&path, &give_up));
        Ok::<_, io::Error>([shell?, iopub?])
    });
    let [shell, iopub] = streams.await??;
    Ok([UnixStream::from_std(shell)?, UnixStream::from_std(iopub)?])
}

fn connect_when_there(path: &Path, give_up: &AtomicBool) -> io::Result<BlockingStream> {
    loop {
        match BlockingStream::connect(path) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) if give_up.load(Ordering::Relaxed) => return Err(error),
            Err(_) => std::thread::sleep(LOOK),
        }
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

/// Tells the cell under way when the kernel has ended and all its output has arrived.
async fn see_end(
    mut ended: watch::Receiver<Option<Ended>>,
    output: tokio::task::JoinHandle<()>,
    cell: watch::Sender<Cell>,
) {
    let output = AbortOnDropHandle::new(output);
    let _ = ended.wait_for(Option::is_some).await;
    // What the kernel has started may keep its sockets open.
    let _ = tokio::time::timeout(DRAIN, output).await;
    cell.send_modify(|cell| cell.gone = true);
}
