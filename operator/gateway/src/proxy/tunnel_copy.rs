//! Copies of tunneled bytes. Most tunnels are idle or carry keystrokes and keep a small buffer. One that
//! fills it borrows a large one while its bytes keep coming, from a number that all tunnels share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

const SMALL_BYTES: usize = 8 << 10;
const LARGE_BYTES: usize = 64 << 10;
/// Large buffers of all tunnels: 4 MiB.
const MAX_LARGE: usize = 64;
/// Time without a byte after which a large buffer is returned.
const LARGE_IDLE: Duration = Duration::from_secs(1);

/// Number of large buffers that are left. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct LargeBuffers(Arc<Semaphore>);

#[derive(Debug)]
struct LargeBuffer {
    bytes: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl LargeBuffers {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LARGE)))
    }

    fn borrow(&self) -> Option<LargeBuffer> {
        Some(LargeBuffer {
            _permit: Arc::clone(&self.0).try_acquire_owned().ok()?,
            bytes: vec![0; LARGE_BYTES],
        })
    }
}

/// Copies in both directions until both have ended; the end of one is passed on alone.
///
/// # Errors
/// The first error of either side, which ends both directions.
pub(super) async fn copy_both<A, B>(left: A, right: B, large: &LargeBuffers) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (left_read, left_write) = split(left);
    let (right_read, right_write) = split(right);
    tokio::try_join!(
        copy(left_read, right_write, large),
        copy(right_read, left_write, large)
    )?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    large: &LargeBuffers,
) -> io::Result<()> {
    let mut small = vec![0; SMALL_BYTES];
    let mut borrowed: Option<LargeBuffer> = None;
    loop {
        let (read, bytes) = match &mut borrowed {
            None => (from.read(&mut small).await?, &small[..]),
            Some(buffer) => {
                let Ok(read) = timeout(LARGE_IDLE, from.read(&mut buffer.bytes)).await else {
                    borrowed = None;
                    continue;
                };
                (read?, &buffer.bytes[..])
            }
        };
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
        to.flush().await?;
        if read < SMALL_BYTES {
            borrowed = None;
        } else if borrowed.is_none() {
            borrowed = large.borrow();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// A tunnel between two ends, which never hold up a write of a test.
    fn tunnel(large: &LargeBuffers) -> (DuplexStream, DuplexStream) {
        let (left, left_inner) = duplex(1 << 20);
        let (right, right_inner) = duplex(1 << 20);
        let large = large.clone();
        tokio::spawn(async move { copy_both(left_inner, right_inner, &large).await });
        (left, right)
    }

    async fn send(from: &mut DuplexStream, to: &mut DuplexStream, count: usize) {
        let sent: Vec<u8> = (0..=250).cycle().take(count).collect();
        from.write_all(&sent).await.unwrap();
        let mut received = vec![0; count];
        to.read_exact(&mut received).await.unwrap();
        assert_eq!(received, sent);
    }

    #[tokio::test(start_paused = true)]
    async fn large_buffers_are_borrowed_while_bytes_keep_coming() {
        let large = LargeBuffers::new();
        let left = |large: &LargeBuffers| large.0.available_permits();
        let (mut client, mut sandbox) = tunnel(&large);
        send(&mut client, &mut sandbox, 100).await;
        assert_eq!(left(&large), MAX_LARGE);
        send(&mut client, &mut sandbox, SMALL_BYTES + 2 * LARGE_BYTES).await;
        send(&mut sandbox, &mut client, SMALL_BYTES + 2 * LARGE_BYTES).await;
        assert_eq!(left(&large), MAX_LARGE - 2);
        send(&mut client, &mut sandbox, 1).await;
        tokio::task::yield_now().await;
        assert_eq!(left(&large), MAX_LARGE - 1, "few bytes return the buffer");
        tokio::time::sleep(2 * LARGE_IDLE).await;
        assert_eq!(left(&large), MAX_LARGE, "an idle tunnel returns it");
        send(&mut sandbox, &mut client, 100).await;
    }

    #[tokio::test(start_paused = true)]
    async fn tunnels_beyond_the_number_of_large_buffers_go_on() {
        let large = LargeBuffers(Arc::new(Semaphore::new(1)));
        let mut tunnels = [tunnel(&large), tunnel(&large)];
        for (client, sandbox) in &mut tunnels {
            send(client, sandbox, 10 * LARGE_BYTES).await;
        }
        drop(tunnels);
        tokio::task::yield_now().await;
        assert_eq!(large.0.available_permits(), 1);
    }

    #[tokio::test]
    async fn end_of_one_direction_is_passed_on_alone() {
        let (mut client, mut sandbox) = tunnel(&LargeBuffers::new());
        client.shutdown().await.unwrap();
        assert_eq!(sandbox.read(&mut [0]).await.unwrap(), 0);
        send(&mut sandbox, &mut client, 3 * LARGE_BYTES).await;
    }
}
