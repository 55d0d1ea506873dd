//! Bounded channels between a blocking thread and a client that may be slow or disconnected.

use std::error::Error;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Chunks in the channel; bounds the memory of a transfer.
const CHANNEL_CAPACITY: usize = 4;
const CHUNK_BYTES: usize = 64 << 10;
/// Time that a client may read nothing.
const STALL_TIMEOUT: Duration = Duration::from_mins(2);

/// Reading end of an upload, for a blocking thread.
#[derive(Debug)]
pub(in crate::serve) struct UploadReader {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    /// Marks the upload as complete.
    End,
}

/// Sending end of an upload.
#[derive(Debug)]
pub(in crate::serve) struct UploadSender(mpsc::Sender<Piece>);

pub(in crate::serve) fn upload_channel() -> (UploadSender, UploadReader) {
    let (sender, pieces) = mpsc::channel(CHANNEL_CAPACITY);
    let received = UploadReader {
        pieces,
        current: Bytes::new(),
        ended: false,
    };
    (UploadSender(sender), received)
}

impl UploadSender {
    /// Returns false if the reader is gone.
    pub(in crate::serve) async fn data(&self, data: Bytes) -> bool {
        self.0.send(Piece::Data(data)).await.is_ok()
    }

    pub(in crate::serve) async fn end(self) {
        // A reader that is gone reports its own error.
        let _ = self.0.send(Piece::End).await;
    }
}

impl Read for UploadReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.ended = true,
                None => return Err(UploadIncomplete.into()),
            }
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

/// The sender was dropped before the end of the upload.
#[derive(Debug, thiserror::Error)]
#[error("the upload broke off")]
struct UploadIncomplete;

impl From<UploadIncomplete> for io::Error {
    fn from(broken: UploadIncomplete) -> Self {
        Self::new(io::ErrorKind::UnexpectedEof, broken)
    }
}

pub(super) fn is_broken(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn Error + Send + Sync>::is::<UploadIncomplete>)
}

/// Response body of a download.
#[derive(Debug)]
pub(in crate::serve) struct Download(mpsc::Receiver<io::Result<Bytes>>);

/// Writing end of a download, for a blocking thread.
#[derive(Debug)]
pub(in crate::serve) struct ArchiveWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    buffer: Vec<u8>,
}

/// Must be called in the runtime that sends the response.
pub(in crate::serve) fn channel() -> (Download, ArchiveWriter) {
    let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let sink = ArchiveWriter {
        sender,
        runtime: Handle::current(),
        buffer: Vec::with_capacity(CHUNK_BYTES),
    };
    (Download(receiver), sink)
}

impl ArchiveWriter {
    fn push(&mut self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.sender.send_timeout(piece, STALL_TIMEOUT);
        self.runtime
            .block_on(sent)
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Aborts the response, so that the client sees an incomplete body.
    pub(super) fn fail(&mut self, error: io::Error) {
        // An error means that the client has disconnected.
        let _ = self.push(Err(error));
    }
}

impl Write for ArchiveWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = data.len().min(CHUNK_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&data[..length]);
        if self.buffer.len() == CHUNK_BYTES {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK_BYTES));
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
    async fn upload_without_end_is_incomplete() {
        let (sending, mut received) = upload_channel();
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
    async fn upload_with_end_is_complete() {
        let (sending, mut received) = upload_channel();
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
