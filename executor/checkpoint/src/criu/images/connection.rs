//! The connection over which CRIU asks for images.

use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::super::messages::text_field;
use super::super::protobuf::MessageWriter;
use crate::error::FailureReason;

/// Longest message that CRIU may send; names have at most 40 characters.
const MAX_MESSAGE_BYTES: u32 = 4096;
/// Time for one message, which CRIU writes without waiting. With it, calls that a signal interrupts
/// do not go on by themselves.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) enum Connection {
    Listening { listener: UnixListener, peer: i32 },
    Connected(UnixStream),
    Closed,
}

impl Connection {
    /// Waits for the process with this number; another one is turned away.
    pub(super) fn new(listener: UnixListener, peer: i32) -> Self {
        Self::Listening { listener, peer }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Listening { listener, .. } => Some(listener.as_fd()),
            Self::Connected(stream) => Some(stream.as_fd()),
            Self::Closed => None,
        }
    }

    /// Accepts CRIU, or reads the name of an image that it opens.
    pub(super) fn receive(&mut self) -> Result<Option<String>, FailureReason> {
        match self {
            Self::Listening { listener, peer } => {
                let (stream, _) = listener.accept()?;
                if socket_peercred(&stream)?.pid.as_raw_pid() == *peer {
                    stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
                    stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
                    *self = Self::Connected(stream);
                }
                Ok(None)
            }
            Self::Connected(stream) => {
                let name = read_name(stream)?;
                if name.is_none() {
                    *self = Self::Closed;
                }
                Ok(name)
            }
            Self::Closed => Ok(None),
        }
    }

    /// Answers whether the archive has the image.
    pub(super) fn answer(&mut self, exists: bool) -> Result<(), FailureReason> {
        let message = MessageWriter::default().flag(1, exists).finish();
        let length = u32::try_from(message.len()).map_err(|_| FailureReason::Protocol)?;
        let framed = [length.to_ne_bytes().as_slice(), &message].concat();
        Ok(self.stream()?.write_all(&framed)?)
    }

    /// Receives the pipe of the image that was named last.
    pub(super) fn receive_pipe(&mut self) -> Result<OwnedFd, FailureReason> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0; 1];
        let stream = self.stream()?;
        retry_on_intr(|| {
            recvmsg(
                &*stream,
                &mut [IoSliceMut::new(&mut byte)],
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )
        })?;
        let pipe = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        pipe.ok_or(FailureReason::Protocol)
    }

    fn stream(&mut self) -> Result<&mut UnixStream, FailureReason> {
        match self {
            Self::Connected(stream) => Ok(stream),
            _ => Err(FailureReason::Protocol),
        }
    }
}

/// Reads exactly one message, so that no byte of the one that carries the pipe is taken.
fn read_name(stream: &mut UnixStream) -> Result<Option<String>, FailureReason> {
    let mut length = [0; 4];
    if retry_on_intr(|| rustix::io::read(&*stream, &mut length[..1]))? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut length[1..])?;
    let length = u32::from_ne_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        return Err(FailureReason::Protocol);
    }
    let mut message = vec![0; usize::try_from(length).map_err(|_| FailureReason::Protocol)?];
    stream.read_exact(&mut message)?;
    Ok(Some(text_field(&message, 1)))
}
