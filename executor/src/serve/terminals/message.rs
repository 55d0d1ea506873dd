//! Messages of a connection to a terminal: the first byte is a channel, as in version 5 of the
//! remote command protocol of Kubernetes (`docs/specs/executor.md`, section 13.3).

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::exit::Exit;
use crate::serve::output_log::Stream;

/// Longest message of a client: 64 KiB of input and its channel.
pub(in crate::serve) const MAX_MESSAGE_BYTES: usize = (64 << 10) + 1;
/// Most columns and rows of a terminal.
const MAX_SIZE: u16 = 1000;

const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERROR: u8 = 2;
const STATUS: u8 = 3;
const SIZE: u8 = 4;
const CLOSE: u8 = 255;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum MessageError {
    #[error("a message begins with a channel")]
    Empty,
    #[error("clients cannot send on channel {0}")]
    Channel(u8),
    #[error("a size is {{\"Width\": 80, \"Height\": 24}}, each 1 to {MAX_SIZE}")]
    Size,
    #[error("only channel 0 can be closed")]
    Close,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(in crate::serve) struct TerminalSize {
    pub(in crate::serve) width: u16,
    pub(in crate::serve) height: u16,
}

impl TerminalSize {
    /// Size of the agent's shell.
    pub(in crate::serve) const AGENT: Self = Self {
        width: 1000,
        height: 1000,
    };

    /// Returns the size if a terminal can have it.
    pub(in crate::serve) fn checked(width: u16, height: u16) -> Option<Self> {
        let allowed = 1..=MAX_SIZE;
        let is_valid = allowed.contains(&width) && allowed.contains(&height);
        is_valid.then_some(Self { width, height })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::serve) enum ClientMessage {
    Input(Bytes),
    Size(TerminalSize),
    EndOfInput,
}

impl ClientMessage {
    pub(in crate::serve) fn parse(message: &Bytes) -> Result<Self, MessageError> {
        let (channel, content) = message.split_first().ok_or(MessageError::Empty)?;
        match *channel {
            INPUT => Ok(Self::Input(message.slice(1..))),
            SIZE => {
                let size = serde_json::from_slice::<TerminalSize>(content).ok();
                let size = size.and_then(|size| TerminalSize::checked(size.width, size.height));
                size.map(Self::Size).ok_or(MessageError::Size)
            }
            CLOSE if content == [INPUT] => Ok(Self::EndOfInput),
            CLOSE => Err(MessageError::Close),
            other => Err(MessageError::Channel(other)),
        }
    }
}

/// Content of the channel for events besides output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::serve) enum Status {
    /// Offset of the first byte of output that follows.
    Offset(u64),
    /// Bytes of output that this viewer has missed.
    Skipped(u64),
    Size(TerminalSize),
    /// `{"code": 0}` or `{"signal": "KILL"}`
    Exit(Exit),
}

impl Status {
    pub(in crate::serve) fn to_message(self) -> Bytes {
        // Numbers and names have no value that cannot be written.
        let text = serde_json::to_vec(&self).unwrap_or_default();
        framed(STATUS, &text)
    }
}

pub(in crate::serve) fn output_message(stream: Stream, bytes: &[u8]) -> Bytes {
    let channel = match stream {
        Stream::Output => OUTPUT,
        Stream::Error => ERROR,
    };
    framed(channel, bytes)
}

fn framed(channel: u8, content: &[u8]) -> Bytes {
    [&[channel], content].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(message: &'static [u8]) -> Result<ClientMessage, MessageError> {
        ClientMessage::parse(&Bytes::from_static(message))
    }

    #[test]
    fn messages_of_clients_are_input_size_and_end() {
        let input = |bytes: &'static [u8]| Ok(ClientMessage::Input(Bytes::from_static(bytes)));
        assert_eq!(parse(b"\0ls\n"), input(b"ls\n"));
        assert_eq!(parse(b"\0"), input(b""));
        assert_eq!(parse(b"\xff\0"), Ok(ClientMessage::EndOfInput));
        let size = TerminalSize {
            width: 120,
            height: 40,
        };
        let message = b"\x04{\"Width\": 120, \"Height\": 40}";
        assert_eq!(parse(message), Ok(ClientMessage::Size(size)));
    }

    #[test]
    fn other_messages_are_rejected() {
        assert_eq!(parse(b""), Err(MessageError::Empty));
        for channel in (1..=3).chain(5..=254) {
            let message = Bytes::from(vec![channel, b'x']);
            let rejected = Err(MessageError::Channel(channel));
            assert_eq!(ClientMessage::parse(&message), rejected);
        }
        assert_eq!(parse(b"\xff\x01"), Err(MessageError::Close));
        assert_eq!(parse(b"\xff"), Err(MessageError::Close));
        for message in [
            &b"\x04"[..],
            b"\x04{}",
            b"\x04{\"Width\": 0, \"Height\": 24}",
            b"\x04{\"Width\": 80, \"Height\": 1001}",
            b"\x04{\"Width\": -1, \"Height\": 24}",
            b"\x04[80, 24",
        ] {
            assert_eq!(parse(message), Err(MessageError::Size), "{message:?}");
        }
        // A close frame has room for 123 bytes.
        for error in [MessageError::Size, MessageError::Channel(200)] {
            assert!(error.to_string().len() < 123, "{error}");
        }
    }

    #[test]
    fn messages_to_clients_begin_with_their_channel() {
        assert_eq!(output_message(Stream::Output, b"a"), &b"\x01a"[..]);
        assert_eq!(output_message(Stream::Error, b""), &b"\x02"[..]);
        let size = TerminalSize {
            width: 80,
            height: 24,
        };
        for (status, text) in [
            (Status::Offset(5), r#"{"offset":5}"#),
            (Status::Skipped(6), r#"{"skipped":6}"#),
            (Status::Size(size), r#"{"size":{"Width":80,"Height":24}}"#),
            (Status::Exit(Exit::Code(3)), r#"{"exit":{"code":3}}"#),
            (
                Status::Exit(Exit::Signal("KILL")),
                r#"{"exit":{"signal":"KILL"}}"#,
            ),
        ] {
            let message = status.to_message();
            assert_eq!(message[0], STATUS);
            assert_eq!(&message[1..], text.as_bytes());
        }
    }
}
