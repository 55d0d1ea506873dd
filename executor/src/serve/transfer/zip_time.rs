//! Timestamps of archive entries, limited to 1980 to 2107.

use std::time::{SystemTime, UNIX_EPOCH};

use zip::DateTime;

/// Nearest representable time, in UTC.
pub(super) fn of(time: Option<SystemTime>) -> DateTime {
    let seconds = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let seconds = seconds.map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let part = |unit: u64, size: u64| u8::try_from(seconds / unit % size).unwrap_or(0);
    let (hour, minute, second) = (part(3600, 24), part(60, 60), part(1, 60));
    match u16::try_from(year) {
        Ok(year @ 1980..=2107) => {
            DateTime::from_date_and_time(year, month, day, hour, minute, second)
        }
        Ok(0..1980) => return DateTime::default(),
        _ => DateTime::from_date_and_time(2107, 12, 31, 23, 59, 58),
    }
    .unwrap_or_default()
}

/// Converts days since 1970 to year, month, day. Years start in March, so that leap days are last.
fn date(days: u64) -> (u64, u8, u8) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let small = |number| u8::try_from(number).unwrap_or(1);
    (era * 400 + year + next, small(month), small(day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn date_converts_days_since_1970() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (3652, (1980, 1, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_778, (2026, 11, 21)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn times_outside_the_zip_range_are_clamped() {
        let at = |seconds| of(Some(UNIX_EPOCH + Duration::from_secs(seconds)));
        assert_eq!(of(None), DateTime::default());
        assert_eq!(at(5), DateTime::default());
        assert_eq!(at(1 << 40).year(), 2107);
        let usual = at(1_795_234_753);
        assert_eq!(
            (usual.year(), usual.month(), usual.day(), usual.hour()),
            (2026, 11, 21, 4)
        );
    }
}
