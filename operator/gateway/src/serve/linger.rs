//! Lingering close of a connection whose client is still sending. Closing a socket with unread
//! bytes resets it, and the reset may overtake the response (RFC 9112, section 9.6). So input is
//! read and discarded for a while.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Future as _;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Time in which a client may read its response and stop sending.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum that it may send meanwhile.
const MAX_LINGER_BYTES: usize = 64 << 20;
/// Size of one read.
const READ_CHUNK_BYTES: usize = 8 * 1024;

/// A lingering close.
#[derive(Debug)]
pub(super) struct Linger {
    limit: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(super) fn begin() -> Self {
        Self {
            limit: Box::pin(sleep(LINGER_TIMEOUT)),
            left: MAX_LINGER_BYTES,
        }
    }

    /// Ready when the client has stopped sending or a limit is reached.
    pub(super) fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut chunk = [0; READ_CHUNK_BYTES];
        while self.left > 0 && self.limit.as_mut().poll(cx).is_pending() {
            let mut chunk = ReadBuf::new(&mut chunk);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut chunk));
            let count = chunk.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.left = self.left.saturating_sub(count);
        }
        Poll::Ready(())
    }
}
