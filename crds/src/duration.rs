//! Durations as they stand in a spec. kube's own type reads more than the CRDs accept and writes
//! what they refuse (`0ns`), so an object that was read could not be written back.

use std::fmt;
use std::str::FromStr;
use std::time;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units and their length in nanoseconds; longer names first, or `ms` would be read as minutes.
const UNITS: [(&str, u128); 4] = [
    ("ms", 1_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];
/// Digits on each side of a decimal point, as in the CRDs.
const DIGITS: usize = 9;
/// What is longer is taken for this, 114 000 years in hours: a number with as many digits as the
/// CRDs accept.
const LONGEST: time::Duration = time::Duration::from_hours(999_999_999);

/// A duration as Go writes it, for example `1h30m` or `0s`. It has whole milliseconds: what is
/// shorter counts for one, because nothing at all means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Duration(time::Duration);

/// Why a text is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no duration, as 90s, 20m and 1h30m are")]
pub struct DurationError;

impl From<Duration> for time::Duration {
    fn from(Duration(duration): Duration) -> Self {
        duration
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Self::rounded(duration.as_nanos())
    }
}

impl Duration {
    fn rounded(nanos: u128) -> Self {
        let millis = nanos.div_ceil(1_000_000);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        Self(time::Duration::from_millis(millis).min(LONGEST))
    }
}

/// Reads exactly what the CRDs accept.
impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let mut rest = text;
        let mut nanos = 0_u128;
        while !rest.is_empty() {
            let (part, left) = part(rest).ok_or(DurationError)?;
            nanos = nanos.saturating_add(part);
            rest = left;
        }
        (!text.is_empty())
            .then(|| Self::rounded(nanos))
            .ok_or(DurationError)
    }
}

/// The first number with its unit in nanoseconds, and what follows.
fn part(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = number(text)?;
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => number(rest)?,
        None => ("0", rest),
    };
    let (nanos, rest) = UNITS
        .iter()
        .find_map(|(unit, nanos)| Some((*nanos, rest.strip_prefix(unit)?)))?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let (whole, fraction): (u128, u128) = (whole.parse().ok()?, fraction.parse().ok()?);
    // Rounded up: what is not nothing must not become nothing.
    Some((whole * nanos + (fraction * nanos).div_ceil(scale), rest))
}

/// Leading digits, and what follows; `None` if there are none or too many.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (1..=DIGITS).contains(&end).then(|| text.split_at(end))
}

/// The one form in which it is written, whatever was read.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() {
            return f.write_str("0s");
        }
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 3600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (u64::from(self.0.subsec_millis()), "ms"),
        ];
        for (number, unit) in parts.iter().filter(|(number, _)| *number > 0) {
            write!(f, "{number}{unit}")?;
        }
        Ok(())
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|error| de::Error::custom(format!("{text:?} {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        text.parse::<Duration>().unwrap().to_string()
    }

    #[test]
    fn every_length_is_written_in_one_form() {
        for (read, form) in [
            ("0s", "0s"),
            ("0h0.0ms", "0s"),
            ("90m", "1h30m"),
            ("1440h", "1440h"),
            ("1.5s", "1s500ms"),
            ("0.1h", "6m"),
            ("1h0m0.5s", "1h500ms"),
            ("0.000000001ms", "1ms"),
            ("1.000000001s", "1s1ms"),
            ("999999999h999999999h", "999999999h"),
        ] {
            assert_eq!(written(read), form, "{read}");
            assert_eq!(written(form), form);
        }
    }

    #[test]
    fn what_the_crds_refuse_is_not_read() {
        for odd in [
            "", "0", "5", "-5s", "1d", "1e3s", ".5s", "5.s", "1s ", "0ns", "1us",
        ] {
            assert_eq!(odd.parse::<Duration>(), Err(DurationError), "{odd}");
        }
        assert!("1234567890s".parse::<Duration>().is_err());
    }
}
