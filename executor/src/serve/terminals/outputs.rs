//! Outputs of a program, read in pieces and copied to its log.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout};
use tokio_util::sync::CancellationToken;

use crate::serve::output_log::{OutputLog, Pace, Stream};

/// Content of a full pipe.
const PIECE_BYTES: usize = 64 << 10;
/// Time for the rest of the output after the exit, if programs in the background keep it open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Most bytes that a program can leave in a pipe or terminal when it exits.
const MAX_REST_BYTES: usize = 1 << 20;

type Source = Box<dyn AsyncRead + Send + Unpin>;

#[derive(Debug)]
pub(super) struct Outputs {
    output: StreamReader,
    error: StreamReader,
}

#[derive(derive_more::Debug)]
struct StreamReader {
    /// Absent once it has ended.
    #[debug(skip)]
    source: Option<Source>,
    #[debug(skip)]
    buffer: Vec<u8>,
}

impl StreamReader {
    fn new(source: Option<Source>) -> Self {
        Self {
            buffer: vec![0; source.as_ref().map_or(0, |_| PIECE_BYTES)],
            source,
        }
    }

    /// Next bytes; empty at the end. Cancel-safe.
    async fn next(&mut self) -> &[u8] {
        let Some(source) = &mut self.source else {
            return &[];
        };
        // A terminal that no program has open any more is an error.
        let count = source.read(&mut self.buffer).await.unwrap_or(0);
        if count == 0 {
            self.source = None;
        }
        &self.buffer[..count]
    }
}

impl Outputs {
    pub(super) fn of_terminal(output: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self {
            output: StreamReader::new(Some(Box::new(output))),
            error: StreamReader::new(None),
        }
    }

    pub(super) fn of_pipes(output: Option<ChildStdout>, error: Option<ChildStderr>) -> Self {
        Self {
            output: StreamReader::new(output.map(|output| Box::new(output) as Source)),
            error: StreamReader::new(error.map(|error| Box::new(error) as Source)),
        }
    }

    /// Next bytes; `None` when both have ended. Cancel-safe.
    async fn next(&mut self) -> Option<(Stream, Vec<u8>)> {
        loop {
            let (output, error) = (&mut self.output, &mut self.error);
            let (stream, bytes) = tokio::select! {
                bytes = output.next(), if output.source.is_some() => (Stream::Output, bytes),
                bytes = error.next(), if error.source.is_some() => (Stream::Error, bytes),
                else => return None,
            };
            if !bytes.is_empty() {
                return Some((stream, bytes.to_vec()));
            }
        }
    }

    /// Copies until both outputs have ended. Once the program has `exited`, only what it left.
    pub(super) async fn copy_to(mut self, log: &OutputLog, pace: Pace, exited: &CancellationToken) {
        let mut rest = MAX_REST_BYTES;
        while rest > 0 {
            let after_exit = async {
                exited.cancelled().await;
                tokio::time::sleep(DRAIN_TIMEOUT).await;
            };
            let piece = tokio::select! {
                biased;
                piece = self.next() => piece,
                () = after_exit => None,
            };
            let Some((stream, bytes)) = piece else {
                return;
            };
            if exited.is_cancelled() {
                rest = rest.saturating_sub(bytes.len());
            }
            log.append(stream, &bytes, pace).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::serve::output_log::Piece;

    #[tokio::test(start_paused = true)]
    async fn output_that_stays_open_ends_after_the_exit() {
        let (mut program, terminal) = tokio::io::duplex(1 << 10);
        let log = Arc::<OutputLog>::default();
        let exited = CancellationToken::new();
        exited.cancel();
        tokio::io::AsyncWriteExt::write_all(&mut program, b"last")
            .await
            .unwrap();
        let copying = Outputs::of_terminal(terminal).copy_to(&log, Pace::Complete, &exited);
        copying.await;
        log.end();
        let (mut reader, _) = log.reader(None).unwrap();
        let piece = reader.next().await;
        assert!(matches!(piece, Some(Piece::Output { bytes, .. }) if bytes == b"last"));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn output_without_end_is_cut_after_the_exit() {
        let log = Arc::<OutputLog>::default();
        let exited = CancellationToken::new();
        exited.cancel();
        let endless = Outputs::of_terminal(tokio::io::repeat(b'x'));
        endless
            .copy_to(&log, Pace::UpTo(Duration::ZERO), &exited)
            .await;
        let end = log.reader(Some(u64::MAX)).unwrap().1;
        assert_eq!(end, MAX_REST_BYTES as u64);
    }
}
