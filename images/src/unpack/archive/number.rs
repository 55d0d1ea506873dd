//! Numbers of tar headers.

use rustix::fs::Timespec;

use crate::unpack::UnpackError;

/// Octal digits between blanks and zero bytes, or binary after a set first bit (GNU). Empty is 0.
pub(super) fn signed(what: &'static str, field: &[u8]) -> Result<i64, UnpackError> {
    if field.first().is_some_and(|first| first & 0x80 != 0) {
        return binary(field).ok_or(UnpackError::Format(what));
    }
    let is_padding = |byte: &u8| matches!(byte, 0 | b' ');
    let start = field.iter().position(|byte| !is_padding(byte));
    let digits = &field[start.unwrap_or(field.len())..];
    let end = digits.iter().position(|byte| *byte == 0);
    let digits = digits[..end.unwrap_or(digits.len())].trim_ascii_end();
    match std::str::from_utf8(digits).unwrap_or("?") {
        "" => Ok(0),
        text => i64::from_str_radix(text, 8).map_err(|_| UnpackError::Format(what)),
    }
}

/// Two's complement whose first bit only marks the encoding.
fn binary(field: &[u8]) -> Option<i64> {
    let is_negative = field[0] & 0x40 != 0;
    let sign: i64 = if is_negative { -1 } else { 0 };
    let first = if is_negative {
        field[0]
    } else {
        field[0] & 0x7f
    };
    let digits = std::iter::once(&first).chain(&field[1..]);
    digits.into_iter().try_fold(sign, |sum, digit| {
        let shifted = sum.checked_mul(256)?;
        Some(shifted | i64::from(*digit))
    })
}

pub(super) fn unsigned(what: &'static str, field: &[u8]) -> Result<u64, UnpackError> {
    u64::try_from(signed(what, field)?).map_err(|_| UnpackError::Format(what))
}

pub(super) fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds with decimals, of which nine count.
pub(super) fn time(text: &[u8]) -> Option<Timespec> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = format!("{fraction:0<9}");
    Some(bounded(whole.parse().ok()?, nanoseconds[..9].parse().ok()?))
}

/// A time that all file systems can store. Others become the epoch, as containerd does it.
pub(super) fn bounded(seconds: i64, nanoseconds: i64) -> Timespec {
    const LAST: i64 = i64::MAX / 1_000_000_000;
    let is_stored = (0..LAST).contains(&seconds);
    Timespec {
        tv_sec: if is_stored { seconds } else { 0 },
        tv_nsec: if is_stored { nanoseconds } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        let number = |field: &[u8]| signed("number", field).ok();
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"  644 \0\0"), Some(0o644));
        assert_eq!(number(b"\0\0 7\0x"), Some(7));
        assert_eq!(number(&[0; 8]), Some(0));
        assert_eq!(number(b"8"), None);
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 1, 0, 2]), Some(65538));
        assert_eq!(number(&[0xff; 12]), Some(-1));
        assert_eq!(number(&[0xff, 0xfe]), Some(-2));
        let mut huge = [0; 12];
        (huge[0], huge[1]) = (0x80, 1);
        assert_eq!(number(&huge), None);
        assert!(unsigned("number", &[0xff; 12]).is_err());
    }

    #[test]
    fn times_have_nine_decimals_and_begin_at_the_epoch() {
        let parts = |text: &[u8]| time(text).map(|time| (time.tv_sec, time.tv_nsec));
        assert_eq!(parts(b"12"), Some((12, 0)));
        assert_eq!(parts(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(parts(b"12.0000000019"), Some((12, 1)));
        assert_eq!(parts(b"-1.5"), Some((0, 0)));
        assert_eq!(parts(b"9223372036854775807"), Some((0, 0)));
        assert_eq!(parts(b"1.5.5"), None);
        assert_eq!(parts(b"1e5"), None);
    }
}
