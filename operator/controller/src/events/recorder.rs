//! Writer of Events. An equal Event within ten minutes increments the count of the series. kube's
//! recorder joins Events by reason only and keeps showing the note of the first one.

use std::collections::HashMap;

use crds::{Sandbox, SandboxPool, SandboxSnapshot, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;

use super::{PendingEvent, Regarding};
use shared::clock::Clock;
use shared::index::Key;
use shared::kubernetes::client::{CallError, with_timeout};

/// Field manager of Events, apart from writes of reconciles.
const MANAGER: &str = "sandbox-events";
/// Time in which equal Events form a series.
const SERIES_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Maximum number of series that are tracked.
const MAX_TRACKED_SERIES: usize = 4096;
/// Maximum length of a reporting instance (events.k8s.io/v1), in bytes.
const MAX_INSTANCE_BYTES: usize = 128;

/// Writes Events and tracks their series.
pub(super) struct Recorder {
    client: Client,
    clock: Clock,
    instance: String,
    series: HashMap<SeriesKey, Series>,
}

/// Identity of an Event series.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    uid: String,
    reason: String,
    note: Option<String>,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Recorder {
    pub(super) fn new(client: Client, clock: Clock, mut instance: String) -> Self {
        instance.truncate(instance.floor_char_boundary(MAX_INSTANCE_BYTES));
        Self {
            client,
            clock,
            instance,
            series: HashMap::new(),
        }
    }

    /// Writes an Event, or increments its series. May be retried after an error.
    pub(super) async fn write(&mut self, pending: &PendingEvent) -> Result<(), CallError> {
        let now = self.clock.now();
        self.evict(now);
        let key = SeriesKey {
            uid: pending.uid.clone(),
            reason: pending.content.reason.clone(),
            note: pending.content.note.clone(),
        };
        let api = Api::<Event>::namespaced(self.client.clone(), &pending.key.namespace);
        let incremented = match self.series.get(&key).cloned() {
            Some(series) => increment_count(&api, series, now).await?,
            None => None,
        };
        let written = match incremented {
            Some(series) => series,
            None => self.create(&api, pending, now).await?,
        };
        self.series.insert(key, written);
        Ok(())
    }

    async fn create(
        &self,
        api: &Api<Event>,
        pending: &PendingEvent,
        now: Timestamp,
    ) -> Result<Series, CallError> {
        let event = self.event(pending, now);
        let params = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        match with_timeout(api.create(&params, &event)).await {
            // The response to an earlier attempt was lost.
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        Ok(Series {
            name: event.metadata.name.unwrap_or_default(),
            count: 1,
            last: now,
        })
    }

    fn event(&self, pending: &PendingEvent, now: Timestamp) -> Event {
        let content = &pending.content;
        let kind = if content.warning { "Warning" } else { "Normal" };
        Event {
            metadata: ObjectMeta {
                namespace: Some(pending.key.namespace.clone()),
                name: Some(name(&pending.key, pending.at)),
                ..ObjectMeta::default()
            },
            action: Some(content.action.into()),
            event_time: Some(MicroTime(now)),
            note: content.note.clone(),
            reason: Some(content.reason.clone()),
            regarding: Some(regarding(pending)),
            reporting_controller: Some(names::CONTROLLER_FIELD_MANAGER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(kind.into()),
            ..Event::default()
        }
    }

    /// Drops expired series, or all of them if there are too many, which costs a few more Events.
    fn evict(&mut self, now: Timestamp) {
        if self.series.len() < MAX_TRACKED_SERIES {
            return;
        }
        self.series.retain(|_, s| !s.is_expired(now));
        if self.series.len() >= MAX_TRACKED_SERIES {
            self.series.clear();
        }
    }
}

impl Series {
    fn is_expired(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) > SERIES_WINDOW
    }
}

/// Increments the count of a series; `None` if it has expired, or its Event is gone.
async fn increment_count(
    api: &Api<Event>,
    mut series: Series,
    now: Timestamp,
) -> Result<Option<Series>, CallError> {
    if series.is_expired(now) {
        return Ok(None);
    }
    series.count = series.count.saturating_add(1);
    series.last = now;
    let patch = Patch::Merge(json!({
        "series": {"count": series.count, "lastObservedTime": MicroTime(now)},
    }));
    let params = PatchParams::apply(MANAGER);
    match with_timeout(api.patch(&series.name, &params, &patch)).await {
        Ok(_) => Ok(Some(series)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Name of an Event. It is the same for each attempt, so that a retry creates no second Event.
fn name(key: &Key, at: Timestamp) -> String {
    format!("{}.{:x}", key.name, at.as_nanosecond())
}

fn regarding(pending: &PendingEvent) -> ObjectReference {
    let (api_version, kind) = match pending.regarding {
        Regarding::Sandbox => (Sandbox::api_version(&()), Sandbox::kind(&())),
        Regarding::Pool => (SandboxPool::api_version(&()), SandboxPool::kind(&())),
        Regarding::Snapshot => (
            SandboxSnapshot::api_version(&()),
            SandboxSnapshot::kind(&()),
        ),
    };
    ObjectReference {
        api_version: Some(api_version.into_owned()),
        kind: Some(kind.into_owned()),
        namespace: Some(pending.key.namespace.clone()),
        name: Some(pending.key.name.clone()),
        uid: Some(pending.uid.clone()),
        ..ObjectReference::default()
    }
}
