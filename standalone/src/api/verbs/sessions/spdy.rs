//! Frames of SPDY/3.1, as far as port-forward needs them. Flow control is ignored both ways, as
//! Kubernetes' own clients and servers ignore it.

mod headers;

#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use headers::HeaderInflater;

const CONTROL: u32 = 0x8003_0000;
const SYN_STREAM: u32 = 1;
const SYN_REPLY: u32 = 2;
const RST_STREAM: u32 = 3;
const PING: u32 = 6;
const GOAWAY: u32 = 7;
const HEADERS: u32 = 8;

const FIN: u32 = 1;

/// Reasons of `reset`.
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const REFUSED_STREAM: u32 = 3;
pub(super) const CANCEL: u32 = 5;

/// Maximum number of bytes of a frame from the client, which sends 32 KiB.
const MAX_FRAME_BYTES: u32 = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Open {
        stream: u32,
        headers: HashMap<String, String>,
    },
    Data {
        stream: u32,
        data: Vec<u8>,
        is_last: bool,
    },
    Reset(u32),
    Ping(u32),
    GoAway,
    /// Any other frame, to be ignored.
    Other,
}

/// Reads frames. After an error nothing more can be read: the state of compression is lost.
pub(super) struct FrameReader<R> {
    input: R,
    headers: HeaderInflater,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(input: R) -> Self {
        let headers = HeaderInflater::new();
        Self { input, headers }
    }

    pub(super) async fn next(&mut self) -> io::Result<Frame> {
        let first = self.input.read_u32().await?;
        let second = self.input.read_u32().await?;
        let (flags, length) = (second >> 24, second & 0xff_ffff);
        if length > MAX_FRAME_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; usize::try_from(length).unwrap_or_default()];
        self.input.read_exact(&mut payload).await?;
        if first >> 31 == 0 {
            return Ok(Frame::Data {
                stream: first,
                data: payload,
                is_last: flags & FIN != 0,
            });
        }
        let frame = self.control(first, &payload);
        frame.ok_or_else(|| ErrorKind::InvalidData.into())
    }

    fn control(&mut self, first: u32, mut payload: &[u8]) -> Option<Frame> {
        let kind = first.checked_sub(CONTROL)?;
        Some(match kind {
            SYN_STREAM => {
                let stream = payload.try_get_u32().ok()?;
                // Associated stream, priority and slot.
                let headers = self.headers.inflate(payload.get(6..)?)?;
                Frame::Open { stream, headers }
            }
            SYN_REPLY | HEADERS => {
                // Later headers refer to these.
                self.headers.inflate(payload.get(4..)?)?;
                Frame::Other
            }
            RST_STREAM => Frame::Reset(payload.try_get_u32().ok()?),
            PING => Frame::Ping(payload.try_get_u32().ok()?),
            GOAWAY => Frame::GoAway,
            ..=0xffff => Frame::Other,
            _ => return None,
        })
    }
}

/// Accepts a stream, without headers.
pub(super) fn reply(stream: u32, is_first_reply: bool) -> Bytes {
    let start: &[u8] = if is_first_reply { &headers::START } else { &[] };
    control(SYN_REPLY, &[&stream.to_be_bytes(), start, &headers::NONE])
}

/// Ends a stream both ways.
pub(super) fn reset(stream: u32, reason: u32) -> Bytes {
    control(RST_STREAM, &[&stream.to_be_bytes(), &reason.to_be_bytes()])
}

/// Servers have even numbers; a client's ping is answered with its own.
pub(super) fn ping(number: u32) -> Bytes {
    control(PING, &[&number.to_be_bytes()])
}

pub(super) fn data(stream: u32, data: &[u8], is_last: bool) -> Bytes {
    frame(stream, u32::from(is_last) * FIN, &[data])
}

fn control(kind: u32, payload: &[&[u8]]) -> Bytes {
    frame(CONTROL | kind, 0, payload)
}

fn frame(first: u32, flags: u32, payload: &[&[u8]]) -> Bytes {
    let payload = payload.concat();
    debug_assert!(payload.len() < 1 << 24);
    let length = u32::try_from(payload.len()).unwrap_or_default();
    let second = (flags << 24) | length;
    [&first.to_be_bytes()[..], &second.to_be_bytes(), &payload]
        .concat()
        .into()
}
