//! History of a sandbox, as far as the API has times of it.

use client::{RuntimeInfo, ServerInfo};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::table::Table;
use crate::text::{duration, seconds};

/// Moments in order of time.
pub(crate) fn moments(
    info: &RuntimeInfo,
    server: Option<&ServerInfo>,
    now: Timestamp,
) -> Vec<(Timestamp, String)> {
    let mut moments = Vec::new();
    let mut add = |at: Option<Timestamp>, text: String| moments.extend(at.map(|at| (at, text)));
    add(info.created_at, "created".into());
    if info.started_at > info.created_at {
        add(info.started_at, "start began".into());
    }
    add(info.scheduled_at, "Pod scheduled".into());
    add(
        info.container_started_at,
        "images pulled, container started".into(),
    );
    // A Pod from before this start has no stages in it: a warm one, one that waited for the resume,
    // or that of a pause that was canceled.
    let was_there = info.scheduled_at.is_none() && info.container_started_at.is_none();
    let ready = if was_there {
        "ready in a Pod from before the start"
    } else {
        "ready"
    };
    add(info.ready_at, ready.into());
    if let Some(kept) = &info.persisted {
        add(kept.at, format!("paused, kept {}", kept.level));
    }
    if let Some(restored) = &info.restored {
        add(restored.at, format!("resumed, restored {}", restored.level));
    }
    for event in &info.events {
        let time = event["lastTimestamp"]
            .as_str()
            .and_then(|time| time.parse().ok());
        add(
            time,
            [&event["reason"], &event["message"]].map(text).join(": "),
        );
    }
    if let Some(server) = server {
        add(before(now, server.uptime), "server started".into());
        if server.idle_time >= 1.0 && server.idle_time < server.uptime {
            add(before(now, server.idle_time), "last activity".into());
        }
    }
    moments.sort_by_key(|(at, _)| *at);
    moments
}

/// Table of moments, each with the time since the one before.
pub(crate) fn render(moments: &[(Timestamp, String)], now: Timestamp) -> String {
    let mut table = Table::new(&["TIME", "AFTER", "MOMENT"]);
    let mut last = None;
    let now = (now, "now".to_owned());
    for (at, text) in moments.iter().chain([&now]) {
        let after = last.map_or_else(|| "-".into(), |last| elapsed(seconds(last, *at)));
        table.row([
            at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            after,
            text.clone(),
        ]);
        last = Some(*at);
    }
    table.render()
}

/// Short times with a decimal, so that the steps of a start can be told apart.
fn elapsed(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{:.1}s", seconds.max(0.0)),
        _ => duration(seconds),
    }
}

fn before(now: Timestamp, seconds: f64) -> Option<Timestamp> {
    let ago = SignedDuration::try_from_secs_f64(seconds).ok()?;
    now.checked_sub(ago).ok()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn timeline_is_in_order_with_durations() {
        let info: RuntimeInfo = serde_json::from_value(json!({
            "runtime_id": "abcdefghijklmnop", "session_id": "s", "url": "http://x", "status": "starting",
            "created_at": "2026-11-27T03:00:00Z", "started_at": "2026-11-27T04:00:00Z",
            "scheduled_at": "2026-11-27T04:00:01Z", "container_started_at": "2026-11-27T04:00:04Z",
            "ready_at": "2026-11-27T04:00:05Z",
            "persisted": {"level": "Root", "at": "2026-11-27T04:05:00Z", "size": 1, "reason": null},
            "events": [{"type": "Normal", "reason": "Pulling", "message": "pulling image",
                "lastTimestamp": "2026-11-27T04:00:01.5Z"}],
        }))
        .unwrap();
        let now = "2026-11-27T04:06:00Z".parse().unwrap();
        let lines = render(&moments(&info, None, now), now);
        let expected = "TIME                   AFTER   MOMENT\n\
                        2026-11-27 03:00:00Z   -       created\n\
                        2026-11-27 04:00:00Z   60m     start began\n\
                        2026-11-27 04:00:01Z   1.0s    Pod scheduled\n\
                        2026-11-27 04:00:01Z   0.5s    Pulling: pulling image\n\
                        2026-11-27 04:00:04Z   2.5s    images pulled, container started\n\
                        2026-11-27 04:00:05Z   1.0s    ready\n\
                        2026-11-27 04:05:00Z   4m55s   paused, kept Root\n\
                        2026-11-27 04:06:00Z   60s     now\n";
        assert_eq!(lines, expected);
    }

    #[test]
    fn timeline_names_a_pod_from_before_the_start() {
        let info: RuntimeInfo = serde_json::from_value(json!({
            "runtime_id": "abcdefghijklmnop", "session_id": "s", "url": "http://x", "status": "running",
            "created_at": "2026-11-27T03:00:00Z", "ready_at": "2026-11-27T03:00:00.3Z",
        }))
        .unwrap();
        let now = "2026-11-27T03:00:01Z".parse().unwrap();
        let lines = render(&moments(&info, None, now), now);
        let expected = "2026-11-27 03:00:00Z   0.3s    ready in a Pod from before the start\n";
        assert!(lines.contains(expected), "{lines}");
    }
}
