//! A tool server that is a process: a JSON message per line on its standard input and output.
//!
//! It runs as the sandbox user with a small environment, and what it writes is bounded: a line that
//! is too long ends it, its standard error output is read and forgotten but for the end.

use std::collections::BTreeMap;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::peer::{End, Inbox, Peer};
use super::sessions::Sessions;
use crate::serve::group::{Group, Leader};
use crate::serve::shell::Start;

/// What a server inherits beside what it is configured with.
const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
/// Bytes of a message.
const MAX_LINE: u64 = 32 << 20;
const LAST_WORDS: usize = 4 << 10;
/// Characters of its last line that are passed on.
const MAX_REASON: usize = 500;
/// What it wrote may still be on its way.
const DRAIN: Duration = Duration::from_millis(50);

/// A process and all that it has started.
#[derive(Debug)]
pub(super) struct Process {
    group: Group,
    _followers: [AbortOnDropHandle<()>; 2],
}

pub(super) fn start(
    command: &str,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    start: &Start,
    sessions: Sessions,
) -> io::Result<(Peer, Process)> {
    let mut child = build(command, arguments, environment, start).spawn()?;
    let missing = io::ErrorKind::BrokenPipe;
    let input = child.stdin.take().ok_or(missing)?;
    let output = child.stdout.take().ok_or(missing)?;
    let errors = child.stderr.take().ok_or(missing)?;
    let (gone, watch) = watch::channel(None);
    let (peer, queue, inbox) = Peer::new(watch, sessions);
    let leader = Leader::new(child, &start.identity)?;
    let group = leader.group();
    let reading = read(output, inbox, group.clone());
    let writing = write(input, queue);
    let ending = see_end(leader, errors);
    tokio::spawn(async move {
        let _ = gone.send(Some(ending.await));
    });
    let process = Process {
        group,
        _followers: [tokio::spawn(reading), tokio::spawn(writing)].map(AbortOnDropHandle::new),
    };
    Ok((peer, process))
}

fn build(
    program: &str,
    arguments: &[String],
    environment: &BTreeMap<String, String>,
    start: &Start,
) -> Command {
    let mut command = Command::new(program);
    let inherited = INHERITED
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command
        .args(arguments)
        .env_clear()
        .envs(inherited)
        .current_dir(start.existing_dir())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    start.identity.adopt(&mut command);
    command.envs(environment);
    command
}

impl Process {
    /// Ends it and what it has started.
    pub(super) async fn end(&self) {
        self.group.end().await;
    }
}

async fn write(mut input: ChildStdin, mut queue: mpsc::Receiver<Value>) {
    while let Some(message) = queue.recv().await {
        let line = format!("{message}\n");
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(output: ChildStdout, inbox: Inbox, group: Group) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut output)
            .take(MAX_LINE)
            .read_until(b'\n', &mut line)
            .await
        {
            Ok(1..) if line.ends_with(b"\n") => {}
            Ok(1..) if line.len() as u64 == MAX_LINE => {
                tracing::warn!("a tool server wrote a line that is too long");
                return group.signal(Signal::KILL).await;
            }
            _ => return,
        }
        // Some print to where only messages belong.
        if let Ok(message) = serde_json::from_slice(&line) {
            inbox.take(message);
        }
        line.shrink_to(64 << 10);
    }
}

/// Waits for its end, and sees to it that its group goes with it.
async fn see_end(mut leader: Leader, errors: ChildStderr) -> End {
    let words = Arc::new(Mutex::new(Vec::new()));
    let listening = tokio::spawn(listen(errors, Arc::clone(&words)));
    let listening = AbortOnDropHandle::new(listening);
    let status = leader.follow().await;
    let _ = tokio::time::timeout(DRAIN, listening).await;
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let words = String::from_utf8_lossy(&words.lock()).into_owned();
    let last = words.trim_end().lines().last().unwrap_or_default();
    let last: String = last.chars().take(MAX_REASON).collect();
    End::now(if last.is_empty() {
        format!("it has ended ({how})")
    } else {
        format!("it has ended ({how}): {last}")
    })
}

async fn listen(mut errors: ChildStderr, words: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4 << 10];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let mut words = words.lock();
        words.extend(&buffer[..count]);
        let excess = words.len().saturating_sub(LAST_WORDS);
        words.drain(..excess);
    }
}
