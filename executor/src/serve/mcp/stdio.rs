//! Local tool server: a process with one JSON message per line on standard input and output.
//!
//! It runs as the sandbox user with a minimal environment. A line that is too long ends it; of
//! standard error only the tail is kept.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::config::LocalServer;
use super::peer::{ConnectionEnd, Inbox, Peer};
use super::sessions::Sessions;
use crate::serve::output_tail::{OutputTail, describe_end};
use crate::serve::process_group::{GroupLeader, ProcessGroup};
use crate::serve::shell::LaunchContext;

/// Variables that a server inherits, beside its configured ones.
const INHERITED: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
const MAX_LINE_BYTES: u64 = 32 << 20;

pub(super) async fn start(
    server: &LocalServer,
    start: &LaunchContext,
    sessions: Sessions,
) -> io::Result<(Peer, ProcessGroup, [AbortOnDropHandle<()>; 2])> {
    let directory = start.launch_dir(Path::new(&server.command)).await?;
    let mut child = command(server, start, &directory).spawn()?;
    let missing = io::ErrorKind::BrokenPipe;
    let input = child.stdin.take().ok_or(missing)?;
    let output = child.stdout.take().ok_or(missing)?;
    let errors = child.stderr.take().ok_or(missing)?;
    let (gone, watch) = watch::channel(None);
    let (peer, queue, inbox) = Peer::new(watch, sessions);
    let leader = GroupLeader::new(child, &start.identity)?;
    let group = leader.group();
    let reading = tokio::spawn(read(output, inbox, group.clone()));
    let writing = tokio::spawn(write(input, queue));
    let ending = wait_for_exit(leader, errors);
    tokio::spawn(async move {
        let _ = gone.send(Some(ending.await));
    });
    Ok((peer, group, [reading, writing].map(AbortOnDropHandle::new)))
}

fn command(server: &LocalServer, start: &LaunchContext, directory: &Path) -> Command {
    let mut command = Command::new(&server.command);
    let inherited = INHERITED.iter();
    let inherited = inherited.filter_map(|name| Some((name, start.variable(name)?)));
    command
        .args(&server.arguments)
        .env_clear()
        .envs(inherited)
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    start.identity.apply_to(&mut command);
    command.envs(&server.environment);
    command
}

async fn write(mut input: ChildStdin, mut queue: mpsc::Receiver<Value>) {
    while let Some(message) = queue.recv().await {
        let line = format!("{message}\n");
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn read(output: ChildStdout, inbox: Inbox, group: ProcessGroup) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut output).take(MAX_LINE_BYTES);
        match limited.read_until(b'\n', &mut line).await {
            Ok(1..) if line.ends_with(b"\n") => {}
            Ok(1..) if line.len() as u64 == MAX_LINE_BYTES => {
                tracing::warn!("a tool server exceeded the limit of a line");
                return group.signal(Signal::KILL).await;
            }
            _ => return,
        }
        // Lines that are not JSON are ignored: some servers print to standard output.
        if let Ok(message) = serde_json::from_slice(&line) {
            inbox.take(message);
        }
        line.shrink_to(64 << 10);
    }
}

/// Waits for the exit of the process and its group, and returns the reason.
async fn wait_for_exit(mut leader: GroupLeader, errors: ChildStderr) -> ConnectionEnd {
    let mut tail = OutputTail::default();
    tail.follow(errors);
    let how = leader.wait().await;
    let (how, last) = (describe_end(how), tail.last_line().await);
    ConnectionEnd::now(if last.is_empty() {
        format!("it {how}")
    } else {
        format!("it {how}: {last}")
    })
}
