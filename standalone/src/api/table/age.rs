//! Ages in the format of kubectl.

use jiff::Timestamp;
use serde_json::Value;

/// Age of a timestamp; `<unknown>` without one.
pub(super) fn since(time: Option<&str>, now: Timestamp) -> String {
    match time.map(str::parse::<Timestamp>) {
        None => "<unknown>".to_owned(),
        Some(Err(_)) => "<invalid>".to_owned(),
        Some(Ok(time)) => human(now.as_second() - time.as_second()),
    }
}

pub(super) fn of_object(object: &Value, now: Timestamp) -> Value {
    since(object["metadata"]["creationTimestamp"].as_str(), now).into()
}

/// Formats a number of seconds.
pub(super) fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..=-2 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{days}d"),
        _ if hours < 24 * 365 * 8 => pair(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

fn pair(large: i64, unit: char, small: i64, small_unit: char) -> String {
    if small == 0 {
        format!("{large}{unit}")
    } else {
        format!("{large}{unit}{small}{small_unit}")
    }
}
