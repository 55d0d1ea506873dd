//! Duration of a spec that round-trips (`docs/decisions/061-round-trip-types.md`). kube's type
//! reads more than the CRDs accept and writes what they reject (`0ns`).

use std::fmt;
use std::str::FromStr;
use std::time;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units and their length in nanoseconds. `ms` comes before `m`, because prefixes are matched.
const UNITS: [(&str, u128); 4] = [
    ("ms", 1_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];
/// Maximum number of digits on each side of a decimal point, as in the CRDs.
const MAX_DIGITS: usize = 9;
/// Upper bound; longer durations are capped. In hours it has the most digits that the CRDs accept.
const MAX_DURATION: time::Duration = time::Duration::from_hours(999_999_999);

/// Duration as Go writes it, for example `1h30m`, in whole milliseconds. Shorter ones are rounded
/// up to one, because `0s` means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Duration(time::Duration);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a duration (examples: 90s, 20m, 1h30m)")]
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
        Self(time::Duration::from_millis(millis).min(MAX_DURATION))
    }
}

/// Accepts exactly what the CRDs accept.
impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let mut rest = text;
        let mut nanos = 0_u128;
        while !rest.is_empty() {
            let (part, left) = parse_component(rest).ok_or(DurationError)?;
            nanos = nanos.saturating_add(part);
            rest = left;
        }
        (!text.is_empty())
            .then(|| Self::rounded(nanos))
            .ok_or(DurationError)
    }
}

/// Reads the first number with its unit. Returns nanoseconds and the rest of the text.
fn parse_component(text: &str) -> Option<(u128, &str)> {
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
    // Rounded up, because zero means never.
    Some((whole * nanos + (fraction * nanos).div_ceil(scale), rest))
}

/// Splits off the leading digits; `None` if there are none or too many.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (1..=MAX_DIGITS).contains(&end).then(|| text.split_at(end))
}

/// Writes the canonical form.
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
    fn duration_is_written_in_canonical_form() {
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
    fn duration_rejects_what_the_crds_reject() {
        for odd in [
            "", "0", "5", "-5s", "1d", "1e3s", ".5s", "5.s", "1s ", "0ns", "1us",
        ] {
            assert_eq!(odd.parse::<Duration>(), Err(DurationError), "{odd}");
        }
        assert!("1234567890s".parse::<Duration>().is_err());
    }
}
