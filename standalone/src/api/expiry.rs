//! Events do not stay: a real API server keeps them for an hour. Here new ones send off those that are older, and the
//! oldest beyond a fixed number, so a sandbox that flaps for days fills no disk. Not each of them does: looking at a
//! thousand events for every new one would cost more than the event.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
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
/// How many new ones there may be beyond that.
const SLACK: usize = 100;
/// How long a look at all of them holds, unless there were that many new ones.
const LOOK: SignedDuration = SignedDuration::from_mins(1);

/// When all events were last looked at.
#[derive(Debug, Default)]
pub(super) struct Expiry(Mutex<Look>);

#[derive(Debug, Default)]
struct Look {
    at: Option<Timestamp>,
    created: usize,
}

impl Expiry {
    /// Counts a new event. Whether it is time for a look.
    fn is_due(&self, now: Timestamp) -> bool {
        let mut look = self.0.lock();
        look.created += 1;
        let due = look.created >= SLACK || look.at.is_none_or(|at| now.duration_since(at) >= LOOK);
        if due {
            *look = Look {
                at: Some(now),
                created: 0,
            };
        }
        due
    }
}

/// What follows from the creation of an object: if it is an event, older ones go.
pub(super) fn after_creation(inner: &Arc<Inner>, created: &Place) -> Result<(), ApiError> {
    if inner.registry.shard("events") != Some(created.shard) {
        return Ok(());
    }
    let now = inner.clock.now();
    if !inner.expiry.is_due(now) {
        return Ok(());
    }
    let mut events = inner.store.list(created.shard, None).0;
    events.sort_by_cached_key(|event| last_change(event));
    let too_many = events.len().saturating_sub(KEPT);
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
