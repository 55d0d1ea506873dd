//! The two pipes of `--remote-debugging-pipe`: Chromium reads commands from descriptor 3 and
//! writes answers to descriptor 4. Messages end with NUL.

use std::io;
use std::os::fd::OwnedFd;

use command_fds::{CommandFdExt as _, FdMapping};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;

mod surrogates;

/// Descriptors of Chromium.
const COMMANDS: i32 = 3;
const ANSWERS: i32 = 4;
/// Longest message of Chromium. A tree of 6 000 elements has 7 MB; a page can make larger ones.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// This side of the pipes.
#[derive(Debug)]
pub struct Pipe {
    commands: OwnedFd,
    answers: OwnedFd,
}

/// Gives a command that starts Chromium the other side of the pipes.
pub fn attach_pipe(command: &mut Command) -> io::Result<Pipe> {
    let (their_commands, commands) = io::pipe()?;
    let (answers, their_answers) = io::pipe()?;
    let mappings = vec![
        FdMapping {
            parent_fd: their_commands.into(),
            child_fd: COMMANDS,
        },
        FdMapping {
            parent_fd: their_answers.into(),
            child_fd: ANSWERS,
        },
    ];
    command.fd_mappings(mappings).map_err(io::Error::other)?;
    Ok(Pipe {
        commands: commands.into(),
        answers: answers.into(),
    })
}

impl Pipe {
    pub(super) fn split(self) -> io::Result<(MessageReader, MessageWriter)> {
        let answers = pipe::Receiver::from_owned_fd(self.answers)?;
        let reader = MessageReader {
            answers: BufReader::with_capacity(64 << 10, answers),
            message: Vec::new(),
        };
        let commands = pipe::Sender::from_owned_fd(self.commands)?;
        Ok((reader, MessageWriter(commands)))
    }
}

pub(super) struct MessageReader {
    answers: BufReader<pipe::Receiver>,
    message: Vec<u8>,
}

impl MessageReader {
    /// The next message; `None` once the pipe is closed or a message is too long.
    pub(super) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        // A large message is rare: its memory is given back.
        if self.message.capacity() > (1 << 20) {
            self.message = Vec::new();
        }
        self.message.clear();
        loop {
            let chunk = self.answers.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == 0);
            let taken = end.unwrap_or(chunk.len());
            self.message.extend_from_slice(&chunk[..taken]);
            let used = end.map_or(taken, |end| end + 1);
            self.answers.consume(used);
            if self.message.len() > MAX_MESSAGE_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if end.is_some() {
                surrogates::replace_lone(&mut self.message);
                return Ok(Some(&self.message));
            }
        }
    }
}

pub(super) struct MessageWriter(pipe::Sender);

impl MessageWriter {
    /// Writes a message; `text` has no NUL, as JSON escapes it.
    pub(super) async fn write(&mut self, mut text: Vec<u8>) -> io::Result<()> {
        text.push(0);
        self.0.write_all(&text).await
    }
}
