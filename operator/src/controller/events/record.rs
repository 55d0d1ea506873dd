//! Writes one Event, or raises the count of one that said the same lately. kube's recorder joins
//! what has the same reason whatever it says, and then shows the first text for ever.

use std::collections::HashMap;

use crds::{Sandbox, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource as _};
use serde_json::json;

use super::Notice;
use crate::clock::Clock;
use crate::index::Key;
use crate::kubernetes::client::{CallError, bounded};

/// Field manager of events: they are not among the writes that make reality match.
const MANAGER: &str = "sandbox-events";
/// How long the same is counted and not said again.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Series that are remembered.
const REMEMBERED: usize = 4096;
/// Longest name of a reporting instance (events.k8s.io/v1), in bytes.
const LONGEST_INSTANCE: usize = 128;

/// Writes events, and remembers which it wrote.
pub(super) struct Recorder {
    client: Client,
    clock: Clock,
    instance: String,
    series: HashMap<SeriesKey, Series>,
}

/// What makes two events the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SeriesKey {
    uid: String,
    reason: &'static str,
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
        instance.truncate(instance.floor_char_boundary(LONGEST_INSTANCE));
        Self {
            client,
            clock,
            instance,
            series: HashMap::new(),
        }
    }

    /// Writes it. After an error it may be tried again.
    pub(super) async fn write(&mut self, notice: &Notice) -> Result<(), CallError> {
        let now = self.clock.now();
        self.forget(now);
        let key = SeriesKey {
            uid: notice.uid.clone(),
            reason: notice.announcement.reason,
            note: notice.announcement.note.clone(),
        };
        let api = Api::<Event>::namespaced(self.client.clone(), &notice.key.namespace);
        let known = self.series.get(&key).cloned();
        let written = match known {
            Some(series) => raise(&api, series, now).await?,
            None => None,
        };
        let written = match written {
            Some(series) => series,
            None => self.create(&api, notice, now).await?,
        };
        self.series.insert(key, written);
        Ok(())
    }

    async fn create(
        &self,
        api: &Api<Event>,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Series, CallError> {
        let event = self.event(notice, now);
        let params = PostParams {
            field_manager: Some(MANAGER.into()),
            ..PostParams::default()
        };
        let created = bounded(api.create(&params, &event)).await;
        // A lost answer to the attempt before: it is there.
        created.map(|_| ()).or_else(|error| {
            if error.is_already_exists() {
                Ok(())
            } else {
                Err(error)
            }
        })?;
        Ok(Series {
            name: event.metadata.name.unwrap_or_default(),
            count: 1,
            last: now,
        })
    }

    fn event(&self, notice: &Notice, now: Timestamp) -> Event {
        let announcement = &notice.announcement;
        let kind = if announcement.warning {
            "Warning"
        } else {
            "Normal"
        };
        Event {
            metadata: ObjectMeta {
                namespace: Some(notice.key.namespace.clone()),
                name: Some(name(&notice.key, notice.at)),
                ..ObjectMeta::default()
            },
            action: Some(announcement.action.into()),
            event_time: Some(MicroTime(now)),
            note: announcement.note.clone(),
            reason: Some(announcement.reason.into()),
            regarding: Some(regarding(notice)),
            reporting_controller: Some(names::CONTROLLER.into()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(kind.into()),
            ..Event::default()
        }
    }

    /// Forgets series that are over; all of them if there are too many, which only costs a few
    /// events more.
    fn forget(&mut self, now: Timestamp) {
        if self.series.len() < REMEMBERED {
            return;
        }
        self.series.retain(|_, s| !s.is_over(now));
        if self.series.len() >= REMEMBERED {
            self.series.clear();
        }
    }
}

impl Series {
    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.last) > WINDOW
    }
}

/// Raises the count of a series; `None` if it is over, or its event gone.
async fn raise(
    api: &Api<Event>,
    mut series: Series,
    now: Timestamp,
) -> Result<Option<Series>, CallError> {
    if series.is_over(now) {
        return Ok(None);
    }
    series.count = series.count.saturating_add(1);
    series.last = now;
    let patch = Patch::Merge(json!({
        "series": {"count": series.count, "lastObservedTime": MicroTime(now)},
    }));
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    match bounded(api.patch(&series.name, &params, &patch)).await {
        Ok(_) => Ok(Some(series)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same for each attempt at one event, so that an attempt whose answer was lost is not doubled.
fn name(key: &Key, at: Timestamp) -> String {
    format!("{}.{:x}", key.name, at.as_nanosecond())
}

fn regarding(notice: &Notice) -> ObjectReference {
    ObjectReference {
        api_version: Some(Sandbox::api_version(&()).into_owned()),
        kind: Some(Sandbox::kind(&()).into_owned()),
        namespace: Some(notice.key.namespace.clone()),
        name: Some(notice.key.name.clone()),
        uid: Some(notice.uid.clone()),
        ..ObjectReference::default()
    }
}
