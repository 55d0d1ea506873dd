//! Deletion of one stored object: grace periods of Pods, finalizers and foreground deletion.
//! [`super::garbage_collector`] takes care of dependents.

use std::{sync::Arc, time::Duration};

use operator::clock::later;
use serde_json::{Value, json};

use super::{
    ApiState,
    error::ApiError,
    object::{self, as_object, items, set_meta},
    registry::NAMESPACES,
    request::Request,
    store::ObjectKey,
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
        let propagation = match policy.or_else(|| body["propagationPolicy"].as_str()) {
            Some("Orphan") => Propagation::Orphan,
            None if body["orphanDependents"] == true => Propagation::Orphan,
            Some("Foreground") => Propagation::Foreground,
            None | Some("Background" | "") => Propagation::Background,
            Some(other) => {
                let message = format!("invalid propagationPolicy: {other:?}");
                return Err(ApiError::BadRequest(message));
            }
        };
        Ok(Self {
            grace: query.grace.or_else(|| body["gracePeriodSeconds"].as_u64()),
            propagation,
            dry_run: query.dry_run || !items(&body["dryRun"]).is_empty(),
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
        })
    }
}

pub(crate) enum DeleteOutcome {
    /// Removed, with its final state.
    Gone(Arc<Value>),
    /// The object has a deletion timestamp and remains for now.
    Terminating(Arc<Value>),
    /// Another writer was faster.
    Lost,
}

/// True for a terminating owner that waits for its dependents.
pub(super) fn waits_for_dependents(object: &Value) -> bool {
    let finalizers = items(&object["metadata"]["finalizers"]);
    object::is_deleting(object) && finalizers.iter().any(|entry| entry == FOREGROUND)
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
    let is_namespace = key.shard == NAMESPACES;
    let remains = grace.is_some_and(|grace| grace > 0) || object::has_finalizers(object);
    if !remains && !is_foreground && !is_namespace {
        let removed = state.store.remove(key, object)?;
        return Ok(removed.map_or(DeleteOutcome::Lost, DeleteOutcome::Gone));
    }
    let mut marked = mark_terminating(state, object, grace.unwrap_or(0));
    if is_namespace {
        let status = object::child_mut(as_object(&mut marked), "status");
        status.insert("phase".to_owned(), json!("Terminating"));
    }
    if is_foreground && !waits_for_dependents(&marked) {
        let mut finalizers = items(&marked["metadata"]["finalizers"]).to_vec();
        finalizers.push(json!(FOREGROUND));
        set_meta(&mut marked, "finalizers", finalizers);
    }
    if marked == **object {
        return Ok(DeleteOutcome::Terminating(object.clone()));
    }
    let marked = state.store.swap(key, Some(object), marked)?;
    Ok(marked.map_or(DeleteOutcome::Lost, DeleteOutcome::Terminating))
}

/// Grace period of a Pod; zero if it is not bound to a node. Other kinds have none.
fn grace(state: &ApiState, key: &ObjectKey, pod: &Value, options: &DeleteOptions) -> Option<u64> {
    let kind = state.registry.stored_in(key.shard);
    kind.filter(|kind| kind.is_pod())?;
    let phase = pod["status"]["phase"].as_str();
    let is_finished = matches!(phase, Some("Succeeded" | "Failed"));
    if is_finished || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
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
        let time = later(state.clock.now(), Duration::from_secs(grace));
        set_meta(&mut marked, "deletionTimestamp", object::seconds(time));
        set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
    }
    let generation = object::generation(object);
    if is_first && generation > 0 {
        set_meta(&mut marked, "generation", generation.saturating_add(1));
    }
    marked
}
