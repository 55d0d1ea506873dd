//! Records of extension headers (POSIX.1-2001 pax): `LENGTH KEY=VALUE\n`. Values may hold any byte,
//! so the length decides and not the newline.

use crate::supervise::persistence::error::StateError;

/// Key of an extended attribute, before its name.
pub(super) const XATTR: &[u8] = b"SCHILY.xattr.";

#[derive(Debug, Default)]
pub(super) struct PaxWriter(Vec<u8>);

impl PaxWriter {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        // Blank, `=` and newline.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend(length.to_string().bytes());
        for part in [b" ", key, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Key and value.
pub(super) type Record<'a> = (&'a [u8], &'a [u8]);

/// Parses records into keys and values.
pub(super) fn parse(mut records: &[u8]) -> Result<Vec<Record<'_>>, StateError> {
    let mut parsed = Vec::new();
    while !records.is_empty() {
        let (record, rest) = split(records).ok_or(StateError::Damaged("extension header"))?;
        parsed.push(record);
        records = rest;
    }
    Ok(parsed)
}

fn split(records: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let blank = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length = number(&records[..blank])?;
    let length = usize::try_from(length).ok()?;
    let text = records.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    let record = (&text[..equals], &text[equals + 1..]);
    Some((record, &records[length..]))
}

/// Parses digits.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = is_digits.then(|| std::str::from_utf8(text).ok())?;
    text?.parse().ok()
}

/// Time as `SECONDS.NANOSECONDS`.
pub(super) fn time_to_text(seconds: i64, nanoseconds: u32) -> String {
    if seconds >= 0 || nanoseconds == 0 {
        return format!("{seconds}.{nanoseconds:09}");
    }
    // Before 1970 the fraction counts downwards.
    format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds)
}

pub(super) fn time_from_text(text: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let point = text.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = text.split_at(point.unwrap_or(text.len()));
    let seconds = i64::try_from(number(whole)?).ok()?;
    let mut digits = [b'0'; 9];
    let fraction = fraction.get(1..).unwrap_or_default();
    let fraction = &fraction[..fraction.len().min(9)];
    digits[..fraction.len()].copy_from_slice(fraction);
    let nanoseconds = u32::try_from(number(&digits)?).ok()?;
    Some(match (is_negative, nanoseconds) {
        (false, _) => (seconds, nanoseconds),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanoseconds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_with_any_bytes_round_trip() {
        let mut writer = PaxWriter::default();
        let records = [
            (&b"path"[..], &b"a\nb=c"[..]),
            (b"SCHILY.xattr.security.capability", b"\x01\0\n\x02"),
            (b"k", &[b'x'; 94]),
            (b"k", b""),
        ];
        for (key, value) in records {
            writer.add(key, value);
        }
        let bytes = writer.into_bytes();
        assert_eq!(parse(&bytes).unwrap(), records);
        assert!(parse(&bytes[..bytes.len() - 1]).is_err());
        for wrong in ["5 a=", "0 a=b\n", "99 a=b\n", "x a=b\n", "6 ab\n", " "] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_round_trip() {
        for time in [(0, 0), (1, 5), (-1, 0), (-1, 1), (-5, 999_999_999)] {
            let text = time_to_text(time.0, time.1);
            assert_eq!(time_from_text(text.as_bytes()), Some(time), "{text}");
        }
        assert_eq!(time_from_text(b"-0.5"), Some((-1, 500_000_000)));
        assert_eq!(time_from_text(b"3"), Some((3, 0)));
        assert_eq!(time_from_text(b"3.x"), None);
    }
}
