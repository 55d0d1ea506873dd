//! Garbage collection by owner reference, and the emptying of namespaces. It runs in the request that causes it: a real
//! server takes a moment longer, which nobody may rely on, and a crash in between is made good at the next start.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Inner,
    error::ApiError,
    object::{self, set_meta},
    store::{Key, Place, Swap},
    verbs::remove_object,
};

/// What follows from the removal of an object.
pub(super) fn after_removal(
    inner: &Arc<Inner>,
    place: &Place,
    last: &Value,
    orphan: bool,
) -> Result<(), ApiError> {
    release_dependents(inner, object::uid(last), orphan)?;
    finish_namespace(inner, &place.key.namespace)
}

/// Deletes the objects a crash separated from their owners.
pub(super) fn sweep(inner: &Arc<Inner>) -> Result<(), ApiError> {
    for uid in inner.store.orphan_owners() {
        release_dependents(inner, &uid, false)?;
    }
    Ok(())
}

/// An object made for an owner that is already gone goes too.
pub(super) fn collect_if_orphan(
    inner: &Arc<Inner>,
    place: &Place,
    object: &Value,
) -> Result<(), ApiError> {
    let mut owners = object::owner_uids(object).peekable();
    if owners.peek().is_some()
        && !owners.any(|owner| inner.store.exists(owner))
        && !object::is_deleting(object)
    {
        remove_object(inner, place, object::uid(object))?;
    }
    Ok(())
}

fn release_dependents(inner: &Arc<Inner>, uid: &str, orphan: bool) -> Result<(), ApiError> {
    for (place, dependent) in inner.store.dependents(uid) {
        let other_owner =
            object::owner_uids(&dependent).any(|owner| owner != uid && inner.store.exists(owner));
        if orphan || other_owner {
            disown(inner, &place, uid)?;
        } else {
            remove_object(inner, &place, object::uid(&dependent))?;
        }
    }
    Ok(())
}

fn disown(inner: &Arc<Inner>, place: &Place, owner: &str) -> Result<(), ApiError> {
    while let Some(current) = inner.store.get(place) {
        let references = current["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten();
        let kept: Vec<_> = references
            .filter(|reference| reference["uid"] != owner)
            .cloned()
            .collect();
        let mut next = Value::clone(&current);
        set_meta(
            &mut next,
            "ownerReferences",
            if kept.is_empty() {
                Value::Null
            } else {
                json!(kept)
            },
        );
        if matches!(
            inner.store.swap(place, Some(&current), next)?,
            Swap::Done(_)
        ) {
            break;
        }
    }
    Ok(())
}

/// Deletes everything in a namespace that is going.
pub(super) fn empty_namespace(inner: &Arc<Inner>, name: &str) -> Result<(), ApiError> {
    for (place, object) in contents(inner, name) {
        remove_object(inner, &place, object::uid(&object))?;
    }
    finish_namespace(inner, name)
}

fn contents(inner: &Inner, namespace: &str) -> Vec<(Place, Arc<Value>)> {
    let place = |shard, object: &Value| Place {
        shard,
        key: Key {
            namespace: namespace.to_owned(),
            name: object::name(object).to_owned(),
        },
    };
    let namespaced = |shard: &usize| {
        inner
            .registry
            .stored_in(*shard)
            .is_some_and(|kind| kind.namespaced)
    };
    let shards = (0..inner.registry.shards().len()).filter(namespaced);
    shards
        .flat_map(|shard| {
            inner
                .store
                .list(shard, Some(namespace))
                .0
                .into_iter()
                .map(move |object| (place(shard, &object), object))
        })
        .collect()
}

/// Removes a namespace that is going and empty.
fn finish_namespace(inner: &Arc<Inner>, name: &str) -> Result<(), ApiError> {
    let Some(shard) = inner
        .registry
        .shard("namespaces")
        .filter(|_| !name.is_empty())
    else {
        return Ok(());
    };
    let place = Place {
        shard,
        key: Key {
            namespace: String::new(),
            name: name.to_owned(),
        },
    };
    let going = inner
        .store
        .get(&place)
        .filter(|namespace| object::is_deleting(namespace));
    if let Some(namespace) = going.filter(|_| contents(inner, name).is_empty()) {
        inner
            .store
            .remove(&place, &namespace, Value::clone(&namespace))?;
    }
    Ok(())
}
