//! Deletion with consequences: dependents by owner reference, and the contents of namespaces.
//! It runs inside the request that causes it. What a crash interrupts is completed at the next
//! start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ApiState, MAX_WRITE_ATTEMPTS,
    deletion::{
        DeleteOptions, DeleteOutcome, FOREGROUND, Propagation, delete_once, waits_for_dependents,
    },
    error::ApiError,
    object::{self, items, set_meta},
    registry::NAMESPACES,
    store::ObjectKey,
};

/// Object that a deletion still has to delete.
struct Pending {
    key: ObjectKey,
    uid: String,
    options: DeleteOptions,
}

impl Pending {
    fn new(key: ObjectKey, object: &Value, options: DeleteOptions) -> Self {
        let uid = object::uid(object).to_owned();
        Self { key, uid, options }
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

/// Deletes with default options unless the object was replaced; repeats after a lost race.
pub(super) fn delete_with_retry(
    state: &ApiState,
    key: ObjectKey,
    object: &Value,
    options: DeleteOptions,
) -> Result<(), ApiError> {
    delete_pending(state, vec![Pending::new(key, object, options)])
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
            finish_namespace(state, &key.namespace)
        }
        DeleteOutcome::Terminating(object) => {
            if waits_for_dependents(object) {
                release_dependents(state, object::uid(object), Propagation::Foreground, pending)?;
            }
            if key.shard == NAMESPACES {
                for (key, object) in contents(state, &key.name) {
                    pending.push(Pending::new(key, &object, DeleteOptions::default()));
                }
                finish_namespace(state, &key.name)?;
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
    let has_owners = object::owner_uids(object).next().is_some();
    let exists = |owner: &str| state.store.find(owner).is_some();
    if has_owners && !object::owner_uids(object).any(exists) && !object::is_deleting(object) {
        delete_with_retry(state, key.clone(), object, DeleteOptions::default())?;
    }
    Ok(())
}

/// Removes a terminating object without finalizers; the node deletes a Pod with a grace period.
pub(super) fn remove_if_done(
    state: &ApiState,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), ApiError> {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64();
    let is_done = object::is_deleting(object) && !object::has_finalizers(object);
    if is_done && grace.unwrap_or(0) == 0 {
        delete_with_retry(state, key.clone(), object, DeleteOptions::default())?;
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
            let options = DeleteOptions {
                propagation,
                ..DeleteOptions::default()
            };
            pending.push(Pending::new(key, &dependent, options));
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
            pending.push(Pending::new(key, &owner, DeleteOptions::default()));
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
        let entries = items(&current["metadata"][field]).iter();
        let kept: Vec<_> = entries.filter(|entry| !is_removed(entry)).collect();
        let mut next = Value::clone(&current);
        let list = (!kept.is_empty()).then(|| json!(kept));
        set_meta(&mut next, field, list);
        if state.store.swap(key, Some(&current), next)?.is_some() {
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
        let objects = state.store.list(shard, Some(namespace)).into_iter();
        objects.map(move |object| (ObjectKey::of(shard, &object), object))
    });
    objects.collect()
}

/// Removes a terminating namespace once it is empty.
fn finish_namespace(state: &ApiState, name: &str) -> Result<(), ApiError> {
    let key = ObjectKey::new(NAMESPACES, "", name);
    let namespace = state.store.get(&key);
    let namespace = namespace.filter(|namespace| object::is_deleting(namespace));
    if let Some(namespace) = namespace.filter(|_| contents(state, name).is_empty()) {
        state.store.remove(&key, &namespace)?;
    }
    Ok(())
}
