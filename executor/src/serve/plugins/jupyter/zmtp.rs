//! The part of ZMTP 3.0 that a client of a Jupyter kernel needs: one connection, the NULL
//! mechanism, multi-frame messages (<https://rfc.zeromq.org/spec/23/>).
//!
//! Messages of a kernel are untrusted and may be huge. Above a limit, only the first and last bytes
//! of long frames are kept (`docs/decisions/080-zmtp-over-unix-sockets.md`).

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes of a message that is kept in full.
const MAX_MESSAGE_BYTES: u64 = 16 << 20;
/// Bytes that are kept at either end of a longer frame.
const EDGE_BYTES: u64 = 1 << 20;
/// Frames of a message; a Jupyter message has about ten.
const MAX_FRAMES: usize = 256;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Content, or its first bytes if `end` is set.
    pub(super) bytes: Vec<u8>,
    /// Last bytes of a truncated frame.
    pub(super) end: Option<Vec<u8>>,
}

/// `READY` command with the socket type and the identity, each behind the length of its value.
pub(super) const READY_DEALER: &[u8] =
    b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x07sandbox";
pub(super) const READY_SUB: &[u8] = b"\x05READY\x0bSocket-Type\0\0\0\x03SUB\x08Identity\0\0\0\0";

/// Exchanges greetings and `READY` commands.
pub(super) async fn shake_hands(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ready: &[u8],
) -> io::Result<()> {
    stream.write_all(&greeting()).await?;
    let mut theirs = [0; 64];
    stream.read_exact(&mut theirs).await?;
    if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || &theirs[12..17] != b"NULL\0" {
        return Err(invalid("the peer does not speak ZMTP 3"));
    }
    stream.write_all(&head(COMMAND, ready.len())).await?;
    stream.write_all(ready).await?;
    let mut left = MAX_MESSAGE_BYTES;
    let (flags, answer) = read_frame(stream, &mut left).await?;
    if flags & COMMAND == 0 || !answer.bytes.starts_with(b"\x05READY") {
        return Err(invalid("the peer is not ready"));
    }
    Ok(())
}

/// Greeting: signature, version 3.0, mechanism NULL, client.
fn greeting() -> [u8; 64] {
    let mut greeting = [0; 64];
    greeting[0] = 0xff;
    greeting[8] = 1;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    frames: &[Vec<u8>],
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let more = if index + 1 < frames.len() { MORE } else { 0 };
        bytes.extend(head(more, frame.len()));
        bytes.extend(frame);
    }
    stream.write_all(&bytes).await
}

/// Receives the next message and skips commands.
pub(super) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut left = MAX_MESSAGE_BYTES;
    loop {
        let (flags, frame) = read_frame(stream, &mut left).await?;
        if flags & COMMAND != 0 {
            continue;
        }
        // Further frames are read and dropped.
        if frames.len() < MAX_FRAMES {
            frames.push(frame);
        }
        if flags & MORE == 0 {
            return Ok(frames);
        }
    }
}

async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
    left: &mut u64,
) -> io::Result<(u8, Frame)> {
    let flags = stream.read_u8().await?;
    let size = if flags & LONG == 0 {
        u64::from(stream.read_u8().await?)
    } else {
        stream.read_u64().await?
    };
    let fits = size <= *left;
    *left = left.saturating_sub(size);
    if fits || size <= 2 * EDGE_BYTES {
        let bytes = read_exactly(stream, size).await?;
        return Ok((flags, Frame { bytes, end: None }));
    }
    let bytes = read_exactly(stream, EDGE_BYTES).await?;
    let mut between = (&mut *stream).take(size - 2 * EDGE_BYTES);
    tokio::io::copy(&mut between, &mut tokio::io::sink()).await?;
    // Fails if the connection has ended in between.
    let end = Some(read_exactly(stream, EDGE_BYTES).await?);
    Ok((flags, Frame { bytes, end }))
}

/// Reads `count` bytes. The buffer grows with the received, not with the announced, size.
async fn read_exactly(stream: &mut (impl AsyncRead + Unpin), count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(count).read_to_end(&mut bytes).await?;
    if (bytes.len() as u64) < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

fn head(flags: u8, size: usize) -> Vec<u8> {
    if let Ok(short) = u8::try_from(size) {
        return vec![flags, short];
    }
    let mut head = vec![flags | LONG];
    head.extend((size as u64).to_be_bytes());
    head
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Frame {
        Frame {
            bytes: bytes.to_vec(),
            end: None,
        }
    }

    #[tokio::test]
    async fn receive_returns_sent_frames() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let sent = vec![Vec::new(), vec![b'x'; 255], vec![b'y'; 256]];
        let expected: Vec<_> = sent.iter().map(|bytes| frame(bytes)).collect();
        let receiving = tokio::spawn(async move { receive(&mut far).await });
        near.write_all(&[COMMAND, 2, b'h', b'i']).await.unwrap();
        send(&mut near, &sent).await.unwrap();
        assert_eq!(receiving.await.unwrap().unwrap(), expected);
    }

    #[tokio::test]
    async fn handshake_succeeds_only_with_zmtp_peer() {
        let (mut near, mut far) = tokio::io::duplex(1024);
        let other = tokio::spawn(async move { shake_hands(&mut far, READY_SUB).await });
        shake_hands(&mut near, READY_DEALER).await.unwrap();
        other.await.unwrap().unwrap();
        let (mut near, mut far) = tokio::io::duplex(1024);
        far.write_all(&[b'H'; 64]).await.unwrap();
        assert!(shake_hands(&mut near, READY_SUB).await.is_err());
    }

    #[tokio::test]
    async fn receive_truncates_long_frames() {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let receiving = tokio::spawn(async move {
            let first = receive(&mut far).await;
            (first, receive(&mut far).await)
        });
        let long = usize::try_from(MAX_MESSAGE_BYTES).unwrap() + 1;
        send(&mut near, &[vec![b'x'; long], vec![b'y']])
            .await
            .unwrap();
        send(&mut near, &[vec![b'z']]).await.unwrap();
        let (first, second) = receiving.await.unwrap();
        let first = first.unwrap();
        let lengths = [&first[0].bytes, first[0].end.as_ref().unwrap()].map(Vec::len);
        assert_eq!(lengths.map(|length| length as u64), [EDGE_BYTES; 2]);
        assert_eq!(first[1].bytes.len(), 1);
        assert_eq!(second.unwrap(), [frame(b"z")]);
    }
}
