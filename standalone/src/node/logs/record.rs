//! Stored form of output: `TIME TAG TEXT`, where the tag tells a full line, a part of one, or the
//! end of the log.

use jiff::Timestamp;

use super::LogOptions;

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
    records.map(|record| text(&record)).collect()
}

/// True if the stored lines contain the end of the log.
pub(super) fn has_end(stored: &[u8]) -> bool {
    decode(stored).any(|record| record.tag == END)
}

fn text(record: &Record<'_>) -> Vec<u8> {
    let end: &[u8] = if record.tag == FULL { b"\n" } else { b"" };
    [record.text, end].concat()
}

/// Output in the form that was requested.
#[derive(Debug)]
pub(super) struct Renderer {
    since: Option<Timestamp>,
    tail_lines: Option<usize>,
    timestamps: bool,
    bytes_left: usize,
    is_line_start: bool,
}

impl Renderer {
    pub(super) fn new(options: &LogOptions) -> Self {
        Self {
            since: options.since,
            tail_lines: options.tail_lines,
            timestamps: options.timestamps,
            bytes_left: options.limit_bytes.unwrap_or(usize::MAX),
            is_line_start: true,
        }
    }

    /// True once the requested number of bytes has been rendered.
    pub(super) fn is_full(&self) -> bool {
        self.bytes_left == 0
    }

    /// The part that exists when the request arrives.
    pub(super) fn first(&mut self, stored: &[u8]) -> Vec<u8> {
        let records: Vec<_> = decode(stored)
            .filter(|record| self.is_selected(record))
            .collect();
        let start = self
            .tail_lines
            .map_or(0, |lines| tail_start(&records, lines));
        self.render(&records[start..])
    }

    /// A later part.
    pub(super) fn next(&mut self, stored: &[u8]) -> Vec<u8> {
        let records: Vec<_> = decode(stored)
            .filter(|record| self.is_selected(record))
            .collect();
        self.render(&records)
    }

    fn is_selected(&self, record: &Record<'_>) -> bool {
        let is_since = |since| {
            record
                .time
                .parse()
                .is_ok_and(|time: Timestamp| time >= since)
        };
        record.tag != END && self.since.is_none_or(is_since)
    }

    fn render(&mut self, records: &[Record<'_>]) -> Vec<u8> {
        let mut output = Vec::new();
        for record in records {
            if self.timestamps && self.is_line_start {
                output.extend(format!("{} ", record.time).into_bytes());
            }
            output.extend(text(record));
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
        let line = |second: u32, tag: char, text: &str| {
            format!("2026-01-01T00:00:0{second}.000000000Z {tag} {text}\n")
        };
        let lines = [
            line(1, FULL, "a"),
            line(2, PARTIAL, "b1"),
            line(3, FULL, "b2"),
            line(4, FULL, "c"),
            line(5, END, ""),
        ];
        lines.concat().into_bytes()
    }

    fn rendered(options: &LogOptions) -> String {
        String::from_utf8(Renderer::new(options).first(&stored())).unwrap()
    }

    #[test]
    fn options_select_lines_bytes_and_times() {
        let tail = |lines| {
            rendered(&LogOptions {
                tail_lines: Some(lines),
                ..LogOptions::default()
            })
        };
        assert_eq!(tail(0), "");
        assert_eq!(tail(1), "c\n");
        assert_eq!(tail(2), "b1b2\nc\n");
        assert_eq!(tail(9), "a\nb1b2\nc\n");
        let since = "2026-01-01T00:00:04Z".parse().ok();
        let options = LogOptions {
            since,
            timestamps: true,
            ..LogOptions::default()
        };
        assert_eq!(rendered(&options), "2026-01-01T00:00:04.000000000Z c\n");
        let limit_bytes = Some(3);
        assert_eq!(
            rendered(&LogOptions {
                limit_bytes,
                ..LogOptions::default()
            }),
            "a\nb"
        );
        let cut = [b"half a line\n", stored().as_slice()].concat();
        assert_eq!(texts(&cut).concat(), b"a\nb1b2\nc\n");
        assert!(has_end(&cut));
    }

    #[test]
    fn encoded_lines_decode() {
        let stored = [encode_line(b"x"), encode_line(b"y\n"), encode(b"", END)].concat();
        assert_eq!(texts(&stored).concat(), b"xy\n");
    }
}
