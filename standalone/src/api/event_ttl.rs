//! Retention of Events, so that a flapping sandbox cannot fill the disk. A new Event removes Events
//! older than an hour and the oldest beyond a fixed number. Sweeps are rate-limited because each
//! reads all Events.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;

use super::{ApiState, error::ApiError, garbage_collector, object, store::ObjectKey};

/// Retention after the last occurrence of an Event.
const EVENT_TTL: Duration = Duration::from_hours(1);
/// Number of Events kept after a sweep.
const MAX_EVENTS: usize = 1000;
/// New Events that force a sweep.
const MAX_EXCESS_EVENTS: usize = 100;
/// Minimum time between sweeps, below that number of new Events.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Time of the last sweep and the Events created since.
#[derive(Debug, Default)]
pub(super) struct EventTtl(Mutex<LastSweep>);

#[derive(Debug, Default)]
struct LastSweep {
    at: Option<Timestamp>,
    created: usize,
}

impl EventTtl {
    /// Counts a new Event. True if a sweep is due.
    fn is_due(&self, now: Timestamp) -> bool {
        let mut sweep = self.0.lock();
        sweep.created += 1;
        let due = sweep.created >= MAX_EXCESS_EVENTS
            || sweep
                .at
                .is_none_or(|at| now.duration_since(at) >= SWEEP_INTERVAL);
        if due {
            *sweep = LastSweep {
                at: Some(now),
                created: 0,
            };
        }
        due
    }
}

/// Removes old Events after the creation of an Event.
pub(super) fn after_creation(state: &ApiState, created: &ObjectKey) -> Result<(), ApiError> {
    if state.registry.shard("events") != Some(created.shard) {
        return Ok(());
    }
    let now = state.clock.now();
    if !state.expiry.is_due(now) {
        return Ok(());
    }
    let mut events = state.store.list(created.shard, None).0;
    events.sort_by_cached_key(|event| last_change(event));
    let too_many = events.len().saturating_sub(MAX_EVENTS);
    for (at, event) in events.iter().enumerate() {
        if at < too_many || is_expired(event, now) {
            let object_key = ObjectKey::of(created.shard, event);
            garbage_collector::remove_object(state, &object_key, event)?;
        }
    }
    Ok(())
}

fn last_change(event: &Value) -> u64 {
    let version = object::resource_version(event);
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn is_expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let last = times.iter().find_map(|time| time.as_str());
    let last = last.and_then(|time| time.parse::<Timestamp>().ok());
    let limit = SignedDuration::try_from(EVENT_TTL).unwrap_or(SignedDuration::MAX);
    last.is_none_or(|last| now.duration_since(last) > limit)
}
