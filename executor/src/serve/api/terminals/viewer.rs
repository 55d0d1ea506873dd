//! One connection to a terminal: output and events out, input and sizes in, independent of each
//! other (`docs/specs/executor.md`, section 13.3).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseCode, CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use crate::serve::activity::Activity;
use crate::serve::executor::Executor;
use crate::serve::output_log::{Piece, Reader};
use crate::serve::terminals::{
    ClientMessage, MAX_MESSAGE_BYTES, SizeChange, Status, Terminal, TerminalSize, output_message,
};

/// Time for a viewer to take one message. A program on pipes waits for it meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_mins(10);
/// Interval of pings, which find connections whose client is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time for a client to answer the end of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type Sink = SplitSink<WebSocket, Message>;

#[derive(Debug)]
pub(super) struct Viewer {
    reader: Reader,
    /// Offset of the first byte for the reader.
    offset: u64,
    /// Absent for the agent's shell.
    terminal: Option<Arc<Terminal>>,
    is_read_only: bool,
    activity: Arc<Activity>,
    ended: CancellationToken,
}

/// Reason for the end of a connection.
#[derive(Debug)]
enum End {
    /// The client has left, or takes no more messages.
    Gone,
    Close(CloseCode, String),
}

impl End {
    fn close(code: CloseCode, reason: &impl ToString) -> Self {
        Self::Close(code, reason.to_string())
    }
}

impl Viewer {
    /// Viewer of a terminal, or of the agent's shell. `None` if there are too many.
    pub(super) fn new(
        executor: &Executor,
        terminal: Option<Arc<Terminal>>,
        after: Option<u64>,
        is_read_only: bool,
    ) -> Option<Self> {
        let terminals = &executor.terminals;
        let log = terminal
            .as_ref()
            .map_or(&terminals.agent, |terminal| &terminal.output);
        let (reader, offset) = log.reader(after)?;
        Some(Self {
            reader,
            offset,
            is_read_only: is_read_only || terminal.is_none(),
            terminal,
            activity: Arc::clone(&executor.activity),
            ended: terminals.connection(),
        })
    }

    pub(super) async fn serve(mut self, socket: WebSocket) {
        let (mut sink, mut stream) = socket.split();
        let (terminal, activity) = (self.terminal.clone(), Arc::clone(&self.activity));
        let (ended, can_type) = (self.ended.clone(), !self.is_read_only);
        let receiver = Receiver {
            terminal: terminal.as_deref(),
            viewer: self.reader.id(),
            can_type,
            activity: &activity,
        };
        let end = tokio::select! {
            end = self.send_output(&mut sink) => end,
            end = receiver.receive(&mut stream) => end,
            () = ended.cancelled() => End::close(
                close_code::RESTART,
                &"the sandbox is saved or ends: connect again",
            ),
        };
        // From here on, a program does not wait for this viewer.
        drop(self);
        if let End::Close(code, reason) = end {
            close(sink, stream, code, reason).await;
        }
    }

    async fn send_output(&mut self, sink: &mut Sink) -> End {
        let terminal = self.terminal.clone();
        let terminal = terminal.as_deref();
        // A program on pipes works for its viewer, also while it is silent.
        let is_on_pipes = terminal.is_some_and(|terminal| !terminal.tty);
        let _running = is_on_pipes.then(|| self.activity.begin());
        let mut sizes = terminal
            .filter(|terminal| terminal.tty)
            .map(Terminal::sizes);
        let size = match (&mut sizes, terminal) {
            (Some(sizes), _) => Some(sizes.borrow_and_update().size),
            (None, None) => Some(TerminalSize::AGENT),
            (None, Some(_)) => None,
        };
        let first = [Some(Status::Offset(self.offset)), size.map(Status::Size)];
        for status in first.into_iter().flatten() {
            if !send(sink, Message::Binary(status.to_message())).await {
                return End::Gone;
            }
        }
        let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        let viewer = self.reader.id();
        loop {
            let (message, is_seen) = tokio::select! {
                biased;
                size = next_size(sizes.as_mut(), viewer) => {
                    (Message::Binary(Status::Size(size).to_message()), false)
                }
                _ = pings.tick() => (Message::Ping(Bytes::new()), false),
                piece = self.reader.next() => match piece {
                    Some(Piece::Output { stream, bytes, is_old }) => {
                        (Message::Binary(output_message(stream, &bytes)), !is_old)
                    }
                    Some(Piece::Skipped(count)) => {
                        (Message::Binary(Status::Skipped(count).to_message()), true)
                    }
                    None => return send_exit(sink, terminal).await,
                },
            };
            if !send(sink, message).await {
                return End::Gone;
            }
            if is_seen {
                self.activity.touch();
            }
        }
    }
}

async fn send(sink: &mut Sink, message: Message) -> bool {
    let sent = timeout(SEND_TIMEOUT, sink.send(message)).await;
    sent.is_ok_and(|sent| sent.is_ok())
}

/// Tells the end of the program, after all of its output.
async fn send_exit(sink: &mut Sink, terminal: Option<&Terminal>) -> End {
    if let Some((terminal, exit)) = terminal.and_then(|one| Some((one, one.exit()?))) {
        let message = Status::Exit(exit).to_message();
        if !send(sink, Message::Binary(message)).await {
            return End::Gone;
        }
        terminal.mark_seen();
    }
    End::close(close_code::NORMAL, &"")
}

/// Next size that another viewer has set.
async fn next_size(sizes: Option<&mut watch::Receiver<SizeChange>>, viewer: u64) -> TerminalSize {
    if let Some(sizes) = sizes {
        while sizes.changed().await.is_ok() {
            let change = *sizes.borrow_and_update();
            if change.by != Some(viewer) {
                return change.size;
            }
        }
    }
    std::future::pending().await
}

/// Ends a connection and waits for the client: its last messages would abort the connection, and
/// the last output with it.
async fn close(
    mut sink: Sink,
    mut stream: SplitStream<WebSocket>,
    code: CloseCode,
    reason: String,
) {
    let reason = Utf8Bytes::from(reason);
    let closing = async {
        let frame = CloseFrame { code, reason };
        if sink.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    let _ = timeout(CLOSE_TIMEOUT, closing).await;
}

/// Handles the messages of a client.
struct Receiver<'a> {
    terminal: Option<&'a Terminal>,
    viewer: u64,
    can_type: bool,
    activity: &'a Arc<Activity>,
}

impl Receiver<'_> {
    async fn receive(&self, stream: &mut SplitStream<WebSocket>) -> End {
        loop {
            let outcome = match stream.next().await {
                Some(Ok(Message::Binary(message))) => self.handle(&message).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                Some(Ok(Message::Text(_))) => {
                    Err(End::close(close_code::UNSUPPORTED, &"messages are binary"))
                }
                Some(Ok(Message::Close(_))) | None => Err(End::Gone),
                Some(Err(_)) => Err(End::close(
                    close_code::SIZE,
                    &format!("a message is malformed or exceeds {MAX_MESSAGE_BYTES} bytes"),
                )),
            };
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    async fn handle(&self, message: &Bytes) -> Result<(), End> {
        let message = ClientMessage::parse(message);
        let message = message.map_err(|error| End::close(close_code::PROTOCOL, &error))?;
        let typing = self.terminal.filter(|_| self.can_type);
        match (message, typing) {
            // It would change the terminal for others.
            (ClientMessage::Size(_), None) => {}
            (_, None) => return Err(End::close(close_code::POLICY, &"the viewer is read-only")),
            (ClientMessage::Size(size), Some(terminal)) => terminal.resize(size, self.viewer),
            (ClientMessage::Input(bytes), Some(terminal)) => {
                self.activity.touch();
                terminal.write(bytes).await;
            }
            (ClientMessage::EndOfInput, Some(terminal)) if terminal.tty => {
                let text = "the input of a terminal has no end: Ctrl-D is the character 4";
                return Err(End::close(close_code::PROTOCOL, &text));
            }
            (ClientMessage::EndOfInput, Some(terminal)) => terminal.close_input(),
        }
        Ok(())
    }
}
