//! Positions and lines of logs.

use futures::io::Cursor as Bytes;

use super::cursor::{Cursor, KnownLines, Position};
use super::line::{Line, MAX_TEXT_BYTES, read_line};
use super::pod_log::advance;

async fn lines(log: &[u8]) -> Vec<Line> {
    let (mut log, mut lines) = (Bytes::new(log), Vec::new());
    while let Some(line) = read_line(&mut log).await.unwrap() {
        lines.push(line);
    }
    lines
}

/// Log of these times, in seconds; the text of a line is its number.
async fn log_of(times: &[u32]) -> Vec<Line> {
    let line = |(number, second)| format!("2026-01-01T00:00:{second:02}.5Z {number}\n");
    let text: String = times.iter().enumerate().map(line).collect();
    lines(text.as_bytes()).await
}

fn position(lines: &[Line]) -> Option<Position> {
    lines.iter().fold(None, advance)
}

/// Texts that follow a position.
fn texts_after(lines: &[Line], position: Option<Position>) -> Vec<&str> {
    let mut known = KnownLines::until(position);
    let new = lines
        .iter()
        .filter(|line| !known.includes(line.time.unwrap()));
    new.map(|line| line.text.as_str()).collect()
}

/// Times that are equal, and out of order as those of two outputs can be.
const TIMES: [u32; 9] = [1, 1, 1, 2, 3, 2, 3, 3, 4];

#[tokio::test]
async fn every_position_continues_with_the_next_line() {
    let log = log_of(&TIMES).await;
    for length in 0..=log.len() {
        let (read, rest) = log.split_at(length);
        let rest: Vec<_> = rest.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts_after(&log, position(read)), rest, "after {length}");
    }
}

#[tokio::test]
async fn rotated_log_continues_with_later_lines() {
    let log = log_of(&TIMES).await;
    let end = position(&log[..3]);
    assert_eq!(texts_after(&log[3..], end).len(), TIMES.len() - 3);
}

#[tokio::test]
async fn cursor_is_read_as_it_was_written() {
    let log = log_of(&TIMES).await;
    let cursor = Cursor {
        position: position(&log[..6]).unwrap(),
        pod: "sandbox-a-1".into(),
    };
    let text = cursor.to_string();
    assert_eq!(text, "1767225603500000000-2-sandbox-a-1");
    assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
    for other in ["", "1", "1-0-a", "x-1-a", "99999999999999999999999999-1-a"] {
        assert!(other.parse::<Cursor>().is_err(), "{other}");
    }
    assert!(
        format!("1-1-{}", "a".repeat(400))
            .parse::<Cursor>()
            .is_err()
    );
}

#[tokio::test]
async fn long_line_is_cut_and_the_next_one_is_whole() {
    let long = "ü".repeat(MAX_TEXT_BYTES);
    let text = format!("2026-01-01T00:00:00Z {long}\n2026-01-01T00:00:01Z next\r\nno time\n");
    let lines = lines(text.as_bytes()).await;
    assert!(lines[0].is_cut && lines[0].text.len() <= MAX_TEXT_BYTES);
    assert_eq!(lines[1].text, "next");
    assert_eq!(lines[2], Line::without_time("no time"));
    let data = serde_json::to_value(&lines[1]).unwrap();
    let expected = serde_json::json!({"time": "2026-01-01T00:00:01Z", "text": "next"});
    assert_eq!(data, expected);
}
