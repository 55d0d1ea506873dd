//! Events do not stay: a real API server keeps them for an hour. Here each new one sends off those that are older, and
//! the oldest beyond a fixed number, so a sandbox that flaps for days fills no disk.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Inner,
    error::ApiError,
    object,
    store::{Key, Place},
    verbs::remove_object,
};

/// How long an event is kept after it last happened.
const KEPT_FOR: Duration = Duration::from_hours(1);
/// How many events are kept.
const KEPT: usize = 1000;

/// What follows from the creation of an object: if it is an event, older ones go.
pub(super) fn after_creation(inner: &Arc<Inner>, created: &Place) -> Result<(), ApiError> {
    if inner.registry.shard("events") != Some(created.shard) {
        return Ok(());
    }
    let mut events = inner.store.list(created.shard, None).0;
    events.sort_by_key(|event| last_change(event));
    let too_many = events.len().saturating_sub(KEPT);
    let now = inner.clock.now();
    for (at, event) in events.iter().enumerate() {
        if at < too_many || is_over(event, now) {
            let place = Place {
                shard: created.shard,
                key: Key {
                    namespace: object::namespace(event).to_owned(),
                    name: object::name(event).to_owned(),
                },
            };
            remove_object(inner, &place, object::uid(event))?;
        }
    }
    Ok(())
}

fn last_change(event: &Value) -> u64 {
    let version = object::resource_version(event);
    version.and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn is_over(event: &Value, now: Timestamp) -> bool {
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let last = times.iter().find_map(|time| time.as_str());
    let last = last.and_then(|time| time.parse::<Timestamp>().ok());
    let limit = SignedDuration::try_from(KEPT_FOR).unwrap_or(SignedDuration::MAX);
    last.is_none_or(|last| now.duration_since(last) > limit)
}
