//! Deletion of one stored object: grace periods of Pods, finalizers and foreground deletion.
//! [`super::garbage_collector`] takes care of dependents.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ApiState,
    error::ApiError,
    object::{self, as_object, set_meta},
    request::Request,
    store::{ObjectKey, SwapResult},
    timestamp::stamp_in,
};

/// Maximum grace period that fits the types of every client.
const MAX_GRACE_SECONDS: u64 = 1 << 31;

/// Finalizer of an owner that waits for its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Treatment of the dependents of a deleted object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    #[default]
    Background,
    /// The object remains until its dependents are gone.
    Foreground,
    Orphan,
}

/// Options of a delete request, from the query or the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<u64>,
    pub(crate) propagation: Propagation,
    pub(crate) dry_run: bool,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
}

impl DeleteOptions {
    pub(super) fn of(request: &Request) -> Result<Self, ApiError> {
        let query = &request.options;
        let body = if request.body.is_empty() {
            Value::Null
        } else {
            request.decode_body()?
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let policy = query.propagation_policy.as_deref();
        let policy = policy.or_else(|| body["propagationPolicy"].as_str());
        let propagation = match policy {
            Some("Orphan") => Propagation::Orphan,
            None if body["orphanDependents"] == true => Propagation::Orphan,
            Some("Foreground") => Propagation::Foreground,
            None | Some("Background" | "") => Propagation::Background,
            Some(other) => {
                let message = format!("invalid propagationPolicy: {other:?}");
                return Err(ApiError::BadRequest(message));
            }
        };
        let dry_run = body["dryRun"].as_array();
        Ok(Self {
            grace: query.grace.or_else(|| body["gracePeriodSeconds"].as_u64()),
            propagation,
            dry_run: query.dry_run || dry_run.is_some_and(|list| !list.is_empty()),
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
        })
    }
}

/// Outcome of one attempt.
pub(crate) enum DeleteOutcome {
    /// Removed, with its final state.
    Gone(Arc<Value>),
    /// The object has a deletion timestamp and remains for now.
    Terminating { object: Arc<Value>, changed: bool },
    /// Another writer was faster.
    Lost,
}

/// True for a terminating owner that waits for its dependents.
pub(super) fn waits_for_dependents(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    object::is_deleting(object)
        && finalizers.is_some_and(|list| list.iter().any(|entry| entry == FOREGROUND))
}

/// Key of a namespace object.
pub(super) fn namespace_key(state: &ApiState, name: &str) -> Option<ObjectKey> {
    Some(ObjectKey::cluster(
        state.registry.shard("namespaces")?,
        name,
    ))
}

/// Marks or removes `object`, once.
pub(super) fn delete_once(
    state: &ApiState,
    key: &ObjectKey,
    object: &Arc<Value>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, ApiError> {
    let grace = grace(state, key, object, options);
    let is_foreground = options.propagation == Propagation::Foreground
        && !state.store.dependents(object::uid(object)).is_empty();
    let is_namespace = namespace_key(state, &key.key.name).as_ref() == Some(key);
    let remains = grace.is_some_and(|grace| grace > 0) || object::has_finalizers(object);
    if !remains && !is_foreground && !is_namespace {
        let removed = state.store.remove(key, object, Value::clone(object))?;
        return Ok(match removed {
            SwapResult::Lost => DeleteOutcome::Lost,
            SwapResult::Done(last) => DeleteOutcome::Gone(last),
        });
    }
    let mut marked = mark_terminating(state, object, grace.unwrap_or(0));
    if is_namespace {
        object::child_mut(as_object(&mut marked), "status")
            .insert("phase".to_owned(), json!("Terminating"));
    }
    if is_foreground && !waits_for_dependents(&marked) {
        let finalizers = marked["metadata"]["finalizers"].as_array();
        let mut finalizers = finalizers.cloned().unwrap_or_default();
        finalizers.push(json!(FOREGROUND));
        set_meta(&mut marked, "finalizers", finalizers);
    }
    if marked == **object {
        let object = object.clone();
        return Ok(DeleteOutcome::Terminating {
            object,
            changed: false,
        });
    }
    Ok(match state.store.swap(key, Some(object), marked)? {
        SwapResult::Lost => DeleteOutcome::Lost,
        SwapResult::Done(object) => DeleteOutcome::Terminating {
            object,
            changed: true,
        },
    })
}

/// Grace period of a Pod; zero if it is not bound to a node. Other kinds have none.
fn grace(state: &ApiState, key: &ObjectKey, pod: &Value, options: &DeleteOptions) -> Option<u64> {
    let kind = state.registry.stored_in(key.shard);
    kind.filter(|kind| kind.is_pod())?;
    let finished = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if finished || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Some(0);
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
    let requested = options.grace.or(own).unwrap_or(30).min(MAX_GRACE_SECONDS);
    let running = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
    let running = running.filter(|_| object::is_deleting(pod));
    Some(running.map_or(requested, |running| {
        running.min(options.grace.unwrap_or(running))
    }))
}

/// Sets the deletion timestamp. A second delete may shorten the grace period but not extend it.
fn mark_terminating(state: &ApiState, object: &Value, grace: u64) -> Value {
    let mut marked = object.clone();
    let running = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
    let is_first = !object::is_deleting(object);
    if is_first || running.is_some_and(|running| grace < running) {
        set_meta(
            &mut marked,
            "deletionTimestamp",
            stamp_in(&state.clock, grace),
        );
        set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
    }
    let generation = object::generation(object);
    if is_first && generation > 0 {
        set_meta(&mut marked, "generation", generation.saturating_add(1));
    }
    marked
}
