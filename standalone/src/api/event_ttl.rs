//! Retention of Events, so that a flapping sandbox cannot fill the disk. A new Event removes Events
//! older than an hour and the oldest beyond a fixed number. Sweeps are rate-limited because each
//! reads all Events.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    ApiState, deletion::DeleteOptions, error::ApiError, garbage_collector, object, store::ObjectKey,
};

/// Retention after the last occurrence of an Event.
const EVENT_TTL: SignedDuration = SignedDuration::from_hours(1);
/// Number of Events kept after a sweep.
const MAX_EVENTS: usize = 1000;
/// New Events that force a sweep.
const MAX_EXCESS_EVENTS: usize = 100;
/// Minimum time between sweeps, below that number of new Events.
const SWEEP_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Time of the last sweep and the Events created since.
#[derive(Debug, Default)]
pub(super) struct LastSweep {
    at: Option<Timestamp>,
    created: usize,
}

impl LastSweep {
    /// Counts a new Event. True if a sweep is due.
    fn is_due(&mut self, now: Timestamp) -> bool {
        self.created += 1;
        let is_old = self
            .at
            .is_none_or(|at| now.duration_since(at) >= SWEEP_INTERVAL);
        let is_due = is_old || self.created >= MAX_EXCESS_EVENTS;
        if is_due {
            *self = Self {
                at: Some(now),
                created: 0,
            };
        }
        is_due
    }
}

/// Removes old Events after the creation of an Event.
pub(super) fn after_creation(state: &ApiState, created: &ObjectKey) -> Result<(), ApiError> {
    let now = state.clock.now();
    let is_event = state.registry.shards()[created.shard] == "events";
    if !is_event || !state.last_sweep.lock().is_due(now) {
        return Ok(());
    }
    let mut events = state.store.list(created.shard, None);
    events.sort_by_cached_key(|event| last_change(event));
    let too_many = events.len().saturating_sub(MAX_EVENTS);
    for (at, event) in events.iter().enumerate() {
        if at < too_many || is_expired(event, now) {
            let key = ObjectKey::of(created.shard, event);
            let options = DeleteOptions::default();
            garbage_collector::delete_with_retry(state, key, event, options)?;
        }
    }
    Ok(())
}

fn last_change(event: &Value) -> u64 {
    let version = object::resource_version(event).unwrap_or_default();
    version.parse().unwrap_or(0)
}

fn is_expired(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let last = times.iter().find_map(|time| time.as_str());
    let last = last.and_then(|time| time.parse::<Timestamp>().ok());
    last.is_none_or(|last| now.duration_since(last) > EVENT_TTL)
}
