//! A viewer of a program whose connection is made again when it breaks, without repeating output.
//!
//! With a terminal, keys that were typed while the connection broke may be lost. Without one, input
//! that may have been lost would damage data, so that a session which has sent input ends instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, watch};

use super::channel::{self, Size, TerminalEvent};
use super::connection::{self, Reader, Sink};
use super::{AGENT, NewTerminal, Terminal};
use crate::backoff::Backoff;
use crate::{Error, Sandbox};

/// Time for which a broken connection is made again. The server keeps the end of a program for ten
/// minutes.
const RECOVERY_LIMIT: Duration = Duration::from_mins(5);
/// Connections in a row that end without a message, as when the server rejects each of them.
const MAX_FRUITLESS: u32 = 20;
/// Longest input of one message.
const MAX_INPUT_BYTES: usize = 64 << 10;

/// Output side of a viewer.
#[derive(Debug)]
pub struct Session {
    sandbox: Sandbox,
    id: String,
    is_tty: bool,
    is_read_only: bool,
    reader: Reader,
    /// Offset of the next byte of output, once the server has said one.
    offset: Option<u64>,
    input: SessionInput,
    generation: watch::Sender<u64>,
    /// Connections since the last message.
    fruitless: u32,
    is_finished: bool,
}

/// Input side of a viewer. Clones share it.
#[derive(Debug, Clone)]
pub struct SessionInput {
    sink: Arc<Mutex<Sink>>,
    is_tty: bool,
    /// Input that may be lost with the connection was sent.
    has_sent: Arc<AtomicBool>,
    /// The end of input was sent; it is said again on the next connection.
    has_ended: Arc<AtomicBool>,
    generation: watch::Receiver<u64>,
}

impl Sandbox {
    /// Starts a program and connects to it.
    pub async fn exec(&self, terminal: &NewTerminal) -> Result<Session, Error> {
        let made = self.open_terminal(terminal).await?;
        let connected = self.attach(&made, false).await;
        if connected.is_err() {
            let _ = self.close_terminal(&made.id).await;
        }
        connected
    }

    /// Connects to a program that was started before, and begins with the output that is kept.
    pub async fn attach(&self, terminal: &Terminal, is_read_only: bool) -> Result<Session, Error> {
        Session::connect(self, &terminal.id, terminal.tty, is_read_only).await
    }

    /// Watches the agent's own shell, without disturbing it.
    pub async fn watch_agent(&self) -> Result<Session, Error> {
        Session::connect(self, AGENT, true, true).await
    }
}

impl Session {
    async fn connect(
        sandbox: &Sandbox,
        id: &str,
        is_tty: bool,
        is_read_only: bool,
    ) -> Result<Self, Error> {
        let (sink, reader) = connection::connect(sandbox, id, is_read_only, None).await?;
        let (generation, changes) = watch::channel(0);
        Ok(Self {
            sandbox: sandbox.clone(),
            id: id.into(),
            is_tty,
            is_read_only,
            reader,
            offset: None,
            input: SessionInput {
                sink: Arc::new(Mutex::new(sink)),
                is_tty,
                has_sent: Arc::default(),
                has_ended: Arc::default(),
                generation: changes,
            },
            generation,
            fruitless: 0,
            is_finished: false,
        })
    }

    /// Id of the terminal.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn input(&self) -> SessionInput {
        self.input.clone()
    }

    /// Returns the next event. [`TerminalEvent::Exit`] is the last one; after it, `None`.
    pub async fn next(&mut self) -> Result<Option<TerminalEvent>, Error> {
        if self.is_finished {
            return Ok(None);
        }
        loop {
            let event = match self.reader.next(&self.sandbox).await {
                Ok(event) => event,
                Err(Error::Disconnected(reason)) => {
                    self.reconnect(reason).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match &event {
                TerminalEvent::Offset(offset) => {
                    self.offset = Some(*offset);
                    continue;
                }
                TerminalEvent::Output(data) | TerminalEvent::ErrorOutput(data) => {
                    self.advance(data.len() as u64);
                }
                TerminalEvent::Skipped(count) => self.advance(*count),
                TerminalEvent::Exit(_) => self.is_finished = true,
                TerminalEvent::Resized(_) => {}
            }
            self.fruitless = 0;
            return Ok(Some(event));
        }
    }

    /// Ends the program and forgets it.
    pub async fn close(&self) -> Result<(), Error> {
        self.sandbox.close_terminal(&self.id).await
    }

    fn advance(&mut self, bytes: u64) {
        self.offset = self.offset.map(|offset| offset.saturating_add(bytes));
    }

    async fn reconnect(&mut self, reason: String) -> Result<(), Error> {
        let is_lost = !self.is_tty && self.input.has_sent.load(Ordering::Acquire);
        self.fruitless += 1;
        if is_lost || self.offset.is_none() || self.fruitless > MAX_FRUITLESS {
            return Err(Error::Disconnected(reason));
        }
        let mut backoff = Backoff::new(RECOVERY_LIMIT);
        let (sink, reader) = loop {
            if !backoff.wait().await {
                return Err(Error::Disconnected(reason));
            }
            match connection::connect(&self.sandbox, &self.id, self.is_read_only, self.offset).await
            {
                Ok(connected) => break connected,
                Err(error) if error.is_temporary() || matches!(error, Error::Disconnected(_)) => {}
                // Another terminal, or none: its server has started anew.
                Err(Error::NotFound(_)) => return Err(Error::Disconnected(reason)),
                Err(error) => return Err(error),
            }
        };
        self.reader = reader;
        let mut current = self.input.sink.lock().await;
        *current = sink;
        if self.input.has_ended.load(Ordering::Acquire) {
            // A connection that is broken again is noticed by the reader.
            let _ = connection::send(&mut current, channel::end_of_input()).await;
        }
        drop(current);
        self.generation.send_modify(|generation| *generation += 1);
        Ok(())
    }
}

impl SessionInput {
    /// Sends input; waits while the program does not read.
    pub async fn write(&self, data: &[u8]) -> Result<(), Error> {
        self.has_sent.store(true, Ordering::Release);
        for part in data.chunks(MAX_INPUT_BYTES) {
            self.send(channel::input(part)).await?;
        }
        Ok(())
    }

    /// Ends the input of a program without a terminal.
    pub async fn end(&self) -> Result<(), Error> {
        self.has_ended.store(true, Ordering::Release);
        self.send(channel::end_of_input()).await
    }

    pub async fn resize(&self, size: Size) -> Result<(), Error> {
        self.send(channel::resize(size)).await
    }

    /// Sends a message, with a terminal once more after the connection was made again.
    async fn send(&self, message: Bytes) -> Result<(), Error> {
        let mut generation = self.generation.clone();
        generation.mark_unchanged();
        let first = connection::send(&mut *self.sink.lock().await, message.clone()).await;
        if first.is_ok() || !self.is_tty {
            return first;
        }
        // The output side makes the connection again, or ends and drops its sender.
        let changed = generation.changed().await;
        changed.map_err(|_| Error::Disconnected("the session has ended".into()))?;
        connection::send(&mut *self.sink.lock().await, message).await
    }
}
