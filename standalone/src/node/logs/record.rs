//! Stored form of output: `TIME TAG TEXT`, where the tag tells a full line, a part of one, or the
//! end of the log.

use jiff::Timestamp;

use crate::api::LogQuery;

const FULL: char = 'F';
const PARTIAL: char = 'P';
pub(super) const END: char = 'E';

/// Stored form of output up to a line feed or the end of a read.
pub(super) fn encode_line(output: &[u8]) -> Vec<u8> {
    match output.strip_suffix(b"\n") {
        Some(line) => encode(line, FULL),
        None => encode(output, PARTIAL),
    }
}

pub(super) fn encode(text: &[u8], tag: char) -> Vec<u8> {
    let head = format!("{:.9} {tag} ", Timestamp::now());
    [head.as_bytes(), text, b"\n"].concat()
}

struct Record<'a> {
    time: &'a str,
    tag: char,
    text: &'a [u8],
}

/// Decodes stored lines. Incomplete ones, such as the first after a cut, are skipped.
fn decode(stored: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let lines = stored.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        let line = line.strip_suffix(b"\n")?;
        let time = std::str::from_utf8(line.get(..30)?).ok()?;
        let (head, text) = line[30..].split_at_checked(3)?;
        match *head {
            [b' ', tag, b' '] if time.ends_with('Z') => Some(Record {
                time,
                tag: char::from(tag),
                text,
            }),
            _ => None,
        }
    })
}

/// Output without times, in the parts in which it was read.
pub(super) fn texts(stored: &[u8]) -> Vec<Vec<u8>> {
    let records = decode(stored).filter(|record| record.tag != END);
    records.map(|record| record.output()).collect()
}

/// True if the stored lines contain the end of the log.
pub(super) fn has_end(stored: &[u8]) -> bool {
    decode(stored).any(|record| record.tag == END)
}

impl Record<'_> {
    fn output(&self) -> Vec<u8> {
        let end: &[u8] = if self.tag == FULL { b"\n" } else { b"" };
        [self.text, end].concat()
    }

    fn is_since(&self, since: Timestamp) -> bool {
        self.time.parse().is_ok_and(|time: Timestamp| time >= since)
    }
}

/// Output in the form that was requested.
#[derive(Debug)]
pub(super) struct Renderer {
    since: Option<Timestamp>,
    /// Limit of the first part, which exists when the request arrives.
    tail: Option<usize>,
    timestamps: bool,
    bytes_left: usize,
    is_line_start: bool,
}

impl Renderer {
    pub(super) fn new(query: &LogQuery) -> Self {
        Self {
            since: query.since,
            tail: query.tail,
            timestamps: query.timestamps,
            bytes_left: query.limit_bytes.unwrap_or(usize::MAX),
            is_line_start: true,
        }
    }

    /// True once the requested number of bytes has been rendered.
    pub(super) fn is_full(&self) -> bool {
        self.bytes_left == 0
    }

    pub(super) fn render(&mut self, stored: &[u8]) -> Vec<u8> {
        let output = decode(stored).filter(|record| record.tag != END);
        let since = self.since;
        let selected = output.filter(|record| since.is_none_or(|since| record.is_since(since)));
        let records: Vec<_> = selected.collect();
        let start = self
            .tail
            .take()
            .map_or(0, |lines| tail_start(&records, lines));
        let mut output = Vec::new();
        for record in &records[start..] {
            if self.timestamps && self.is_line_start {
                output.extend(format!("{} ", record.time).into_bytes());
            }
            output.extend(record.output());
            self.is_line_start = record.tag == FULL;
        }
        output.truncate(self.bytes_left);
        self.bytes_left -= output.len();
        output
    }
}

/// Index of the record that begins the last `lines` lines.
fn tail_start(records: &[Record<'_>], lines: usize) -> usize {
    let mut left = lines;
    for (index, record) in records.iter().enumerate().rev() {
        let ends_line = record.tag == FULL || index + 1 == records.len();
        if ends_line {
            if left == 0 {
                return index + 1;
            }
            left -= 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Vec<u8> {
        let records = ["F a", "P b1", "F b2", "F c", "E "].iter().zip(1..);
        let line = |(record, second)| format!("2026-01-01T00:00:0{second}.000000000Z {record}\n");
        records.map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn options_select_lines_bytes_and_times() {
        let tail = |lines| LogQuery {
            tail: Some(lines),
            ..LogQuery::default()
        };
        let since = LogQuery {
            since: "2026-01-01T00:00:04Z".parse().ok(),
            timestamps: true,
            ..LogQuery::default()
        };
        let limit = LogQuery {
            limit_bytes: Some(3),
            ..LogQuery::default()
        };
        for (query, expected) in [
            (tail(0), ""),
            (tail(1), "c\n"),
            (tail(2), "b1b2\nc\n"),
            (tail(9), "a\nb1b2\nc\n"),
            (since, "2026-01-01T00:00:04.000000000Z c\n"),
            (limit, "a\nb"),
        ] {
            let rendered = Renderer::new(&query).render(&stored());
            assert_eq!(String::from_utf8(rendered).unwrap(), expected, "{query:?}");
        }
    }

    #[test]
    fn encoded_lines_decode() {
        let stored = [encode_line(b"x"), encode_line(b"y\n"), encode(b"", END)].concat();
        assert_eq!(texts(&stored).concat(), b"xy\n");
        let cut = [b"half a line\n", self::stored().as_slice()].concat();
        assert_eq!(texts(&cut).concat(), b"a\nb1b2\nc\n");
        assert!(has_end(&cut));
    }
}
