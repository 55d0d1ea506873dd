//! Deletion with consequences: dependents by owner reference, and the contents of namespaces.
//! It runs inside the request that causes it. What a crash interrupts is completed at the next
//! start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ApiState, MAX_WRITE_ATTEMPTS,
    deletion::{
        DeleteOptions, DeleteOutcome, FOREGROUND, Propagation, delete_once, namespace_key,
        waits_for_dependents,
    },
    error::ApiError,
    object::{self, set_meta},
    store::{ObjectKey, SwapResult},
};

/// Object that a deletion still has to delete.
struct Pending {
    key: ObjectKey,
    uid: String,
    options: DeleteOptions,
}

impl Pending {
    fn new(key: ObjectKey, object: &Value, propagation: Propagation) -> Self {
        Self {
            key,
            uid: object::uid(object).to_owned(),
            options: DeleteOptions {
                propagation,
                ..DeleteOptions::default()
            },
        }
    }
}

/// Deletes `object`, once, and everything that goes with it.
pub(super) fn delete(
    state: &ApiState,
    key: &ObjectKey,
    object: &Arc<Value>,
    options: &DeleteOptions,
) -> Result<DeleteOutcome, ApiError> {
    let outcome = delete_once(state, key, object, options)?;
    let mut pending = Vec::new();
    follow(state, key, &outcome, options.propagation, &mut pending)?;
    delete_pending(state, pending)?;
    Ok(outcome)
}

/// Deletes an object with default options, as a controller would.
pub(super) fn remove_object(
    state: &ApiState,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), ApiError> {
    let pending = Pending::new(key.clone(), object, Propagation::default());
    delete_pending(state, vec![pending])
}

/// Deletes an object unless it has been replaced, again after a lost race.
pub(super) fn delete_with_retry(
    state: &ApiState,
    key: ObjectKey,
    object: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let pending = Pending {
        key,
        uid: object::uid(object).to_owned(),
        options: options.clone(),
    };
    delete_pending(state, vec![pending])
}

fn delete_pending(state: &ApiState, mut pending: Vec<Pending>) -> Result<(), ApiError> {
    while let Some(next) = pending.pop() {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let object = state.store.get(&next.key);
            let Some(object) = object.filter(|object| object::uid(object) == next.uid) else {
                break;
            };
            let outcome = delete_once(state, &next.key, &object, &next.options)?;
            if !matches!(outcome, DeleteOutcome::Lost) {
                let propagation = next.options.propagation;
                follow(state, &next.key, &outcome, propagation, &mut pending)?;
                break;
            }
        }
    }
    Ok(())
}

/// Collects the objects that are deleted because of `outcome`.
fn follow(
    state: &ApiState,
    key: &ObjectKey,
    outcome: &DeleteOutcome,
    propagation: Propagation,
    pending: &mut Vec<Pending>,
) -> Result<(), ApiError> {
    match outcome {
        DeleteOutcome::Gone(last) => {
            release_dependents(state, object::uid(last), propagation, pending)?;
            release_owners(state, last, pending)?;
            finish_namespace(state, &key.key.namespace)
        }
        DeleteOutcome::Terminating { object, .. } => {
            if waits_for_dependents(object) {
                release_dependents(state, object::uid(object), Propagation::Foreground, pending)?;
            }
            if namespace_key(state, &key.key.name).as_ref() == Some(key) {
                let contents = contents(state, &key.key.name).into_iter();
                pending.extend(
                    contents
                        .map(|(key, object)| Pending::new(key, &object, Propagation::default())),
                );
                finish_namespace(state, &key.key.name)?;
            }
            Ok(())
        }
        DeleteOutcome::Lost => Ok(()),
    }
}

/// Deletes objects whose owners were removed before a crash.
pub(super) fn collect_orphans(state: &ApiState) -> Result<(), ApiError> {
    let mut pending = Vec::new();
    for uid in state.store.orphan_owners() {
        release_dependents(state, &uid, Propagation::default(), &mut pending)?;
    }
    delete_pending(state, pending)
}

/// Deletes a new object if all of its owners are already gone.
pub(super) fn collect_if_orphan(
    state: &ApiState,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), ApiError> {
    let mut owners = object::owner_uids(object).peekable();
    if owners.peek().is_some()
        && !owners.any(|owner| state.store.find(owner).is_some())
        && !object::is_deleting(object)
    {
        remove_object(state, key, object)?;
    }
    Ok(())
}

/// Removes a terminating object without finalizers. A Pod with a grace period stays until the
/// node deletes it.
pub(super) fn remove_if_done(
    state: &ApiState,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), ApiError> {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
    let is_done = object::is_deleting(object) && !object::has_finalizers(object);
    if is_done && grace.unwrap_or(0) == 0 {
        remove_object(state, key, object)?;
    }
    Ok(())
}

/// Deletes the dependents of `uid` that have no other owner; others lose the reference.
fn release_dependents(
    state: &ApiState,
    uid: &str,
    propagation: Propagation,
    pending: &mut Vec<Pending>,
) -> Result<(), ApiError> {
    for (key, dependent) in state.store.dependents(uid) {
        let is_other_owner = |owner: &str| owner != uid && state.store.find(owner).is_some();
        let shared = object::owner_uids(&dependent).any(is_other_owner);
        if shared || propagation == Propagation::Orphan {
            remove_from_list(state, &key, "ownerReferences", |owner| owner["uid"] == uid)?;
        } else {
            pending.push(Pending::new(key, &dependent, propagation));
        }
    }
    Ok(())
}

/// Ends the wait of owners whose last dependent is gone.
fn release_owners(
    state: &ApiState,
    removed: &Value,
    pending: &mut Vec<Pending>,
) -> Result<(), ApiError> {
    for uid in object::owner_uids(removed) {
        let Some((key, owner)) = state.store.find(uid) else {
            continue;
        };
        if waits_for_dependents(&owner) && state.store.dependents(uid).is_empty() {
            remove_from_list(state, &key, "finalizers", |entry| entry == FOREGROUND)?;
            pending.push(Pending::new(key, &owner, Propagation::default()));
        }
    }
    Ok(())
}

/// Removes entries of a list in the metadata of an object, if it still exists.
fn remove_from_list(
    state: &ApiState,
    key: &ObjectKey,
    field: &str,
    is_removed: impl Fn(&Value) -> bool,
) -> Result<(), ApiError> {
    while let Some(current) = state.store.get(key) {
        let entries = current["metadata"][field].as_array().into_iter().flatten();
        let kept: Vec<_> = entries.filter(|entry| !is_removed(entry)).collect();
        let mut next = Value::clone(&current);
        let list = if kept.is_empty() {
            Value::Null
        } else {
            json!(kept)
        };
        set_meta(&mut next, field, list);
        if matches!(
            state.store.swap(key, Some(&current), next)?,
            SwapResult::Done(_)
        ) {
            break;
        }
    }
    Ok(())
}

fn contents(state: &ApiState, namespace: &str) -> Vec<(ObjectKey, Arc<Value>)> {
    let is_namespaced = |shard: &usize| {
        let kind = state.registry.stored_in(*shard);
        kind.is_some_and(|kind| kind.namespaced)
    };
    let shards = (0..state.registry.shards().len()).filter(is_namespaced);
    let objects = shards.flat_map(|shard| {
        let objects = state.store.list(shard, Some(namespace)).0;
        objects
            .into_iter()
            .map(move |object| (ObjectKey::of(shard, &object), object))
    });
    objects.collect()
}

/// Removes a terminating namespace once it is empty.
fn finish_namespace(state: &ApiState, name: &str) -> Result<(), ApiError> {
    let Some(key) = namespace_key(state, name).filter(|_| !name.is_empty()) else {
        return Ok(());
    };
    let namespace = state.store.get(&key);
    let namespace = namespace.filter(|namespace| object::is_deleting(namespace));
    if let Some(namespace) = namespace.filter(|_| contents(state, name).is_empty()) {
        state
            .store
            .remove(&key, &namespace, Value::clone(&namespace))?;
    }
    Ok(())
}
