//! Messages of a terminal: the first byte is a channel, as in Kubernetes' remote command protocol.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERROR_OUTPUT: u8 = 2;
const STATUS: u8 = 3;
const SIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

/// End of a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitStatus {
    Code(i32),
    /// Name without `SIG`.
    Signal(String),
}

/// Message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Output; with a terminal all of it.
    Output(Bytes),
    ErrorOutput(Bytes),
    /// The program has ended. Nothing follows.
    Exit(ExitStatus),
    /// Bytes that this viewer was too slow for.
    Skipped(u64),
    /// Another viewer has changed the size.
    Resized(Size),
    /// Offset of the next byte of output.
    Offset(u64),
}

/// Fields of a status message, of which there is one.
#[derive(Debug, Deserialize)]
struct StatusMessage {
    exit: Option<ExitStatus>,
    skipped: Option<u64>,
    size: Option<Size>,
    offset: Option<u64>,
}

/// Message with input.
pub(crate) fn input(data: &[u8]) -> Bytes {
    [&[INPUT], data].concat().into()
}

/// Message that ends the input of a program without a terminal.
pub(crate) fn end_of_input() -> Bytes {
    Bytes::from_static(&[CLOSE, INPUT])
}

/// Message with another size.
pub(crate) fn resize(size: Size) -> Bytes {
    let mut message = vec![SIZE];
    message.extend(format!(r#"{{"Width": {}, "Height": {}}}"#, size.width, size.height).bytes());
    message.into()
}

/// Reads a message of the server. Messages of later versions are `None`.
pub(crate) fn parse(mut message: Bytes) -> Result<Option<TerminalEvent>, String> {
    if message.is_empty() {
        return Err("an empty message".into());
    }
    let channel = message.split_to(1);
    Ok(match channel.first().copied() {
        Some(OUTPUT) => Some(TerminalEvent::Output(message)),
        Some(ERROR_OUTPUT) => Some(TerminalEvent::ErrorOutput(message)),
        Some(STATUS) => status(&message)?,
        _ => None,
    })
}

fn status(message: &[u8]) -> Result<Option<TerminalEvent>, String> {
    let status: StatusMessage =
        serde_json::from_slice(message).map_err(|error| format!("a status: {error}"))?;
    Ok(match status {
        StatusMessage {
            exit: Some(exit), ..
        } => Some(TerminalEvent::Exit(exit)),
        StatusMessage {
            skipped: Some(count),
            ..
        } => Some(TerminalEvent::Skipped(count)),
        StatusMessage {
            size: Some(size), ..
        } => Some(TerminalEvent::Resized(size)),
        StatusMessage { offset, .. } => offset.map(TerminalEvent::Offset),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        assert_eq!(input(b"ls\r").as_ref(), b"\0ls\r");
        assert_eq!(end_of_input().as_ref(), [255, 0]);
        let size = Size {
            width: 80,
            height: 24,
        };
        assert_eq!(
            resize(size).as_ref(),
            b"\x04{\"Width\": 80, \"Height\": 24}"
        );
        for (message, event) in [
            (
                &b"\x01out"[..],
                Some(TerminalEvent::Output(Bytes::from_static(b"out"))),
            ),
            (
                b"\x02err",
                Some(TerminalEvent::ErrorOutput(Bytes::from_static(b"err"))),
            ),
            (
                b"\x03{\"exit\": {\"code\": 3}}",
                Some(TerminalEvent::Exit(ExitStatus::Code(3))),
            ),
            (
                b"\x03{\"exit\": {\"signal\": \"KILL\"}}",
                Some(TerminalEvent::Exit(ExitStatus::Signal("KILL".into()))),
            ),
            (
                b"\x03{\"skipped\": 1234}",
                Some(TerminalEvent::Skipped(1234)),
            ),
            (
                b"\x03{\"size\": {\"Width\": 80, \"Height\": 24}}",
                Some(TerminalEvent::Resized(size)),
            ),
            (b"\x03{\"offset\": 9}", Some(TerminalEvent::Offset(9))),
            (b"\x03{\"later\": 1}", None),
            (b"\x09later", None),
        ] {
            assert_eq!(parse(Bytes::copy_from_slice(message)).unwrap(), event);
        }
        assert!(parse(Bytes::new()).is_err());
        assert!(parse(Bytes::from_static(b"\x03{")).is_err());
    }
}
