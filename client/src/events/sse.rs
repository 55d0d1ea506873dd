//! Server-sent events of a response, with bounded lines.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::Response;
use tokio::time::timeout;

use crate::Error;
use crate::http_client::broken;

/// One event: a `RuntimeInfo` or a line of a log.
const MAX_EVENT_BYTES: usize = 4 << 20;
/// The gateway sends a comment every 15 s; a stream that is silent for longer is dead.
const SILENCE_LIMIT: Duration = Duration::from_mins(1);

/// One event as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RawEvent {
    /// `message` without one.
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: String,
}

/// Reads events until the stream ends.
#[derive(derive_more::Debug)]
pub(crate) struct EventReader {
    #[debug(skip)]
    parts: BoxStream<'static, reqwest::Result<Bytes>>,
    url: String,
    parser: Parser,
}

/// Splits bytes into events.
#[derive(Debug, Default)]
struct Parser {
    buffer: BytesMut,
    /// Bytes of the buffer in which no line ends.
    scanned: usize,
    name: String,
    id: Option<String>,
    data: Option<String>,
}

impl EventReader {
    pub(crate) fn new(response: Response) -> Self {
        let url = response.url().origin().ascii_serialization();
        Self {
            url,
            parts: response.bytes_stream().boxed(),
            parser: Parser::default(),
        }
    }

    /// Returns the next event; `None` when the server has ended the stream. Comments count as
    /// nothing.
    pub(crate) async fn next(&mut self) -> Result<Option<RawEvent>, Error> {
        loop {
            let parsed = self.parser.next();
            if let Some(event) = parsed.map_err(|text| Error::Protocol(self.url.clone(), text))? {
                return Ok(Some(event));
            }
            let part = timeout(SILENCE_LIMIT, self.parts.next()).await;
            let silent = |_| Error::Unavailable("the stream is silent".into());
            match part.map_err(silent)? {
                Some(Ok(part)) => self.parser.buffer.extend_from_slice(&part),
                Some(Err(error)) => return Err(broken(&self.url, &error)),
                None => return Ok(None),
            }
        }
    }
}

impl Parser {
    fn next(&mut self) -> Result<Option<RawEvent>, String> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.finish() {
                    return Ok(Some(event));
                }
            } else {
                self.field(&line);
            }
            self.check()?;
        }
        self.check()?;
        Ok(None)
    }

    fn check(&self) -> Result<(), String> {
        let length = self.scanned.max(self.data.as_ref().map_or(0, String::len));
        if length > MAX_EVENT_BYTES {
            return Err(format!("an event exceeds {MAX_EVENT_BYTES} bytes"));
        }
        Ok(())
    }

    /// Takes a line that has ended.
    fn line(&mut self) -> Option<String> {
        let rest = self.buffer.get(self.scanned..)?;
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.scanned + end);
        self.buffer.advance(1);
        self.scanned = 0;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        Some(String::from_utf8_lossy(line).into_owned())
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.name),
            "id" => self.id = Some(value.into()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.into()),
            },
            _ => {}
        }
    }

    fn finish(&mut self) -> Option<RawEvent> {
        let name = std::mem::take(&mut self.name);
        let id = self.id.take();
        let data = self.data.take();
        if name.is_empty() && data.is_none() {
            return None;
        }
        let name = if name.is_empty() {
            "message".into()
        } else {
            name
        };
        Some(RawEvent {
            name,
            id,
            data: data.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(parser: &mut Parser, part: &[u8]) -> Vec<RawEvent> {
        parser.buffer.extend_from_slice(part);
        std::iter::from_fn(|| parser.next().unwrap()).collect()
    }

    #[test]
    fn events_are_the_same_in_parts_of_any_size() {
        let text = ": keep-alive\n\nevent: runtime\r\nid: 7\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\nevent: synced\n\n";
        let whole = events(&mut Parser::default(), text.as_bytes());
        let expected = [
            RawEvent {
                name: "runtime".into(),
                id: Some("7".into()),
                data: "{\"a\":\n1}".into(),
            },
            RawEvent {
                name: "message".into(),
                id: None,
                data: "x".into(),
            },
            RawEvent {
                name: "synced".into(),
                id: None,
                data: String::new(),
            },
        ];
        assert_eq!(whole, expected);
        let mut parser = Parser::default();
        let single: Vec<_> = text
            .bytes()
            .flat_map(|byte| events(&mut parser, &[byte]))
            .collect();
        assert_eq!(single, expected);
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut parser = Parser::default();
        parser
            .buffer
            .extend_from_slice(&vec![b'x'; MAX_EVENT_BYTES + 1]);
        assert!(parser.next().is_err());
    }
}
