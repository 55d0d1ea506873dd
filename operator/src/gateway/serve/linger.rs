//! The end of a connection whose client is still sending. To close a socket with unread bytes resets
//! it, and a reset may overtake the answer (RFC 9112 9.6): so what comes is read for a while, and
//! thrown away.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Future as _;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How long a client may take to read its answer and to stop sending.
const LONGEST: Duration = Duration::from_secs(5);
/// How much it may send meanwhile.
const MOST: usize = 64 << 20;
/// How much is read at a time.
const PIECE: usize = 8 * 1024;

/// The wait for a client to stop.
#[derive(Debug)]
pub(super) struct Linger {
    limit: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(super) fn begin() -> Self {
        Self {
            limit: Box::pin(sleep(LONGEST)),
            left: MOST,
        }
    }

    /// Ready when the client has stopped, or has had its time.
    pub(super) fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut piece = [0; PIECE];
        while self.left > 0 && self.limit.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut piece);
            let read = ready!(Pin::new(&mut *stream).poll_read(cx, &mut piece));
            let count = piece.filled().len();
            if read.is_err() || count == 0 {
                break;
            }
            self.left = self.left.saturating_sub(count);
        }
        Poll::Ready(())
    }
}
