//! One line of a log as Kubernetes sends it: its time, a space, and the text of the program, which is
//! not trusted.

use std::io;

use futures::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use jiff::Timestamp;
use serde::Serialize;

/// Bytes of a text; the rest of a longer line is dropped.
pub(super) const MAX_TEXT_BYTES: usize = 16 << 10;
/// Bytes of a time with its space, and room for the end of the line.
const STAMP_BYTES: usize = 48;

/// One line, and the data of its event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// `None` for a message of Kubernetes about the log.
    pub(super) time: Option<Timestamp>,
    pub(super) text: String,
    /// The line was longer.
    #[serde(rename = "cut", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cut: bool,
}

impl Line {
    /// A line whose time is not known.
    pub(super) fn without_time(text: &str) -> Self {
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        Self {
            time: None,
            text: text[..end].to_owned(),
            is_cut: end < text.len(),
        }
    }

    fn parse(bytes: &[u8], has_rest: bool) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        let (stamp, rest) = text.split_once(' ').unwrap_or((text, ""));
        let time = stamp.parse().ok();
        let text = if time.is_some() { rest } else { text };
        let line = Self::without_time(text);
        Self {
            time,
            is_cut: line.is_cut || has_rest,
            ..line
        }
    }
}

/// Reads the next line; `None` at the end of the log. Holds no more than [`MAX_TEXT_BYTES`] of it.
pub(super) async fn read_line(log: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Line>> {
    let limit = MAX_TEXT_BYTES + STAMP_BYTES;
    let mut bytes = Vec::new();
    let mut limited = (&mut *log).take(limit as u64);
    if limited.read_until(b'\n', &mut bytes).await? == 0 {
        return Ok(None);
    }
    let has_rest = bytes.len() == limit && !bytes.ends_with(b"\n");
    if has_rest {
        skip_line(log).await?;
    }
    Ok(Some(Line::parse(&bytes, has_rest)))
}

async fn skip_line(log: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
    loop {
        let part = log.fill_buf().await?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(part.len(), |end| end + 1);
        log.consume_unpin(length);
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}
