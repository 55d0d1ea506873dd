//! The two directions between a thread that blocks and a client that may be slow or gone.

use std::error::Error;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Pieces under way; the memory of a transfer is this many of them.
const PIECES: usize = 4;
const PIECE: usize = 64 << 10;
/// How long a client may stand still.
const STALL: Duration = Duration::from_mins(2);

/// What a client uploads, read by a thread.
#[derive(Debug)]
pub(in crate::serve) struct Received {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    /// Without this the upload is not whole.
    End,
}

/// The other end of `Received`.
#[derive(Debug)]
pub(in crate::serve) struct Sending(mpsc::Sender<Piece>);

pub(in crate::serve) fn receiving() -> (Sending, Received) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let received = Received {
        pieces,
        current: Bytes::new(),
        ended: false,
    };
    (Sending(sender), received)
}

impl Sending {
    /// False when nobody wants more.
    pub(in crate::serve) async fn data(&self, data: Bytes) -> bool {
        self.0.send(Piece::Data(data)).await.is_ok()
    }

    pub(in crate::serve) async fn end(self) {
        // Whoever has stopped reading has an error to tell.
        let _ = self.0.send(Piece::End).await;
    }
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.ended = true,
                None => return Err(Broken.into()),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// The sender is gone before it came to the end.
#[derive(Debug, thiserror::Error)]
#[error("the upload broke off")]
struct Broken;

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        Self::new(io::ErrorKind::UnexpectedEof, broken)
    }
}

pub(super) fn is_broken(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn Error + Send + Sync>::is::<Broken>)
}

/// An archive on its way to a client: the body of an answer.
#[derive(Debug)]
pub(in crate::serve) struct Download(mpsc::Receiver<io::Result<Bytes>>);

/// Where a thread writes an archive.
#[derive(Debug)]
pub(in crate::serve) struct Sink {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    buffer: Vec<u8>,
}

/// To be called in the runtime that serves the answer.
pub(in crate::serve) fn channel() -> (Download, Sink) {
    let (sender, receiver) = mpsc::channel(PIECES);
    let sink = Sink {
        sender,
        runtime: Handle::current(),
        buffer: Vec::with_capacity(PIECE),
    };
    (Download(receiver), sink)
}

impl Sink {
    fn push(&mut self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.sender.send_timeout(piece, STALL);
        self.runtime
            .block_on(sent)
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Lets the client know that what it has is not whole.
    pub(super) fn fail(&mut self, error: io::Error) {
        // If it is gone, it knows.
        let _ = self.push(Err(error));
    }
}

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = data.len().min(PIECE - self.buffer.len());
        self.buffer.extend_from_slice(&data[..length]);
        if self.buffer.len() == PIECE {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        self.push(Ok(piece.into()))
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0
            .poll_recv(context)
            .map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upload_without_its_end_is_broken() {
        let (sending, mut received) = receiving();
        let reading = std::thread::spawn(move || {
            let mut content = Vec::new();
            received.read_to_end(&mut content).map(|_| content)
        });
        assert!(sending.data(Bytes::from_static(b"ab")).await);
        drop(sending);
        let error = tokio::task::spawn_blocking(|| reading.join().unwrap())
            .await
            .unwrap();
        assert!(is_broken(&error.unwrap_err()));
    }

    #[tokio::test]
    async fn an_upload_arrives_whole() {
        let (sending, mut received) = receiving();
        let reading = std::thread::spawn(move || {
            let mut content = String::new();
            received.read_to_string(&mut content).map(|_| content)
        });
        for piece in ["a", "", "bc"] {
            assert!(sending.data(Bytes::from_static(piece.as_bytes())).await);
        }
        sending.end().await;
        let content = tokio::task::spawn_blocking(|| reading.join().unwrap())
            .await
            .unwrap();
        assert_eq!(content.unwrap(), "abc");
    }
}
