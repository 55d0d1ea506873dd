//! Bounded channels between a blocking thread and a client that may be slow or disconnected.

use std::error::Error;
use std::io::{self, Read, Write};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use futures::stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Chunks in the channel; bounds the memory of a transfer.
const CHANNEL_CAPACITY: usize = 4;
const CHUNK_BYTES: usize = 64 << 10;
/// Time that a client may read nothing.
const STALL_TIMEOUT: Duration = Duration::from_mins(2);

/// Reading end of an upload, for a blocking thread.
#[derive(Debug)]
pub(crate) struct UploadReader {
    /// Data, and `None` at the end of a complete upload.
    pieces: mpsc::Receiver<Option<Bytes>>,
    current: Bytes,
    ended: bool,
}

#[derive(Debug)]
pub(crate) struct UploadSender(mpsc::Sender<Option<Bytes>>);

pub(crate) fn upload_channel() -> (UploadSender, UploadReader) {
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
    pub(crate) async fn data(&self, data: Bytes) -> bool {
        self.0.send(Some(data)).await.is_ok()
    }

    pub(crate) async fn end(self) {
        // A reader that is gone reports its own error.
        let _ = self.0.send(None).await;
    }
}

impl Read for UploadReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Some(data)) => self.current = data,
                Some(None) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        UploadIncomplete,
                    ));
                }
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

pub(super) fn is_broken(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn Error + Send + Sync>::is::<UploadIncomplete>)
}

/// Writing end of a download, for a blocking thread.
#[derive(Debug)]
pub(crate) struct ArchiveWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    buffer: Vec<u8>,
}

/// Body of a download and its writing end. Must be called in the runtime that sends the response.
pub(crate) fn channel() -> (Body, ArchiveWriter) {
    let (sender, mut receiver) = mpsc::channel(CHANNEL_CAPACITY);
    let writer = ArchiveWriter {
        sender,
        runtime: Handle::current(),
        buffer: Vec::with_capacity(CHUNK_BYTES),
    };
    let pieces = stream::poll_fn(move |context| receiver.poll_recv(context));
    (Body::from_stream(pieces), writer)
}

impl ArchiveWriter {
    fn push(&mut self, piece: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.sender.send_timeout(piece, STALL_TIMEOUT);
        self.runtime
            .block_on(sent)
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Aborts the response, so that the client sees an incomplete body.
    pub(crate) fn fail(&mut self, error: io::Error) {
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
