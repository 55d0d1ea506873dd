//! Short texts for people: escaped names, durations and sizes.

use std::fmt::Write as _;

use jiff::Timestamp;

/// Escapes control characters. Names and messages come from clients and sandboxes, and could move the
/// cursor or change the title of the terminal.
pub(crate) fn escape(text: &str) -> String {
    escape_except(text, |_| false)
}

/// As [`escape`], with line ends and tabs kept.
pub(crate) fn escape_lines(text: &str) -> String {
    escape_except(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes those control characters that JSON allows in its strings.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            // All of them have four digits.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Bidirectional controls can make a name look like another one.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape_except(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !is_kept(c) {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Duration as kubectl shows ages: `45s`, `12m`, `3h20m`, `5d`.
pub(crate) fn duration(seconds: f64) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates"
    )]
    let s = seconds.max(0.0) as u64;
    match s {
        0..120 => format!("{s}s"),
        120..600 if !s.is_multiple_of(60) => format!("{}m{}s", s / 60, s % 60),
        120..10_800 => format!("{}m", s / 60),
        10_800..36_000 if !(s / 60).is_multiple_of(60) => format!("{}h{}m", s / 3600, s / 60 % 60),
        10_800..172_800 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// Time since then.
pub(crate) fn age(then: Option<Timestamp>) -> String {
    then.map_or_else(
        || "-".into(),
        |then| duration(seconds(then, Timestamp::now())),
    )
}

/// Seconds between two times.
pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Size with a binary unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, text) in [
            (0.4, "0s"),
            (119.0, "119s"),
            (125.0, "2m5s"),
            (3600.0, "60m"),
            (12_000.0, "3h20m"),
            (90_000.0, "25h"),
            (1e6, "11d"),
            (-5.0, "0s"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 40), "5.0 TiB");
    }

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(escape("a\u{1b}]0;x\u{7}\nü"), "a\\u{1b}]0;x\\u{7}\\nü");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(escape_lines("a\n\tb\r"), "a\n\tb\\r");
    }

    #[test]
    fn json_stays_the_same_without_control_characters() {
        let value = serde_json::json!({"a": "\u{1b}\u{9b}31m\u{7f}\u{202e}ü\n"});
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.chars().any(|c| is_hidden(c) && c != '\n'), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
