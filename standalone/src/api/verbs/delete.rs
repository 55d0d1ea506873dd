//! Deletion: preconditions, finalizers, the grace of Pods, and namespaces that take their contents along.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ATTEMPTS, Answer, list_matching,
    write::{contended, decode, namespace_place},
};
use crate::api::{
    Inner,
    clock::stamp_in,
    collect,
    error::{ApiError, success},
    object::{self, as_object, set_meta},
    request::Request,
    store::{Place, Swap},
};

/// The seconds of a grace that still fits every client's types.
const LONGEST_GRACE: u64 = 1 << 31;

/// The options of a delete; they may come in the query or in the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletion {
    grace: Option<u64>,
    orphan: bool,
    dry_run: bool,
    uid: Option<String>,
    revision: Option<String>,
}

impl Deletion {
    fn of(request: &Request) -> Result<Self, ApiError> {
        let options = &request.options;
        let body = if request.body.is_empty() {
            Value::Null
        } else {
            decode(request)?
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            grace: options
                .grace
                .or_else(|| body["gracePeriodSeconds"].as_u64()),
            orphan: options.orphan
                || body["propagationPolicy"] == "Orphan"
                || body["orphanDependents"] == true,
            dry_run: options.dry_run
                || body["dryRun"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty()),
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
        })
    }
}

pub(super) fn delete(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let deletion = Deletion::of(request)?;
    for _ in 0..ATTEMPTS {
        let (place, object) = super::current(inner, request)?;
        check_preconditions(request, &deletion, &object)?;
        if deletion.dry_run {
            return Ok(Answer::Object {
                object,
                created: false,
                changed: false,
                warnings: Vec::new(),
            });
        }
        match delete_once(inner, &place, &object, &deletion)? {
            Deleted::Gone => return Ok(gone(request, &object)),
            Deleted::Later { object, changed } => {
                return Ok(Answer::Object {
                    object,
                    created: false,
                    changed,
                    warnings: Vec::new(),
                });
            }
            Deleted::Lost => {}
        }
    }
    Err(contended(request))
}

fn gone(request: &Request, object: &Value) -> Answer {
    let kind = &request.target.kind;
    let details = json!({"name": object::name(object), "group": kind.group, "kind": kind.plural, "uid": object::uid(object)});
    Answer::Status {
        status: success(&details),
        changed: true,
    }
}

fn check_preconditions(
    request: &Request,
    deletion: &Deletion,
    object: &Value,
) -> Result<(), ApiError> {
    let conflict = |field: &str, sent: &str, found: &str| ApiError::Conflict {
        of: request.target.kind.resource_group(),
        name: object::name(object).to_owned(),
        why: format!(
            "Precondition failed: {field} in precondition: {sent}, {field} in object meta: {found}"
        ),
    };
    let revision = object::resource_version(object).unwrap_or_default();
    match (&deletion.uid, &deletion.revision) {
        (Some(sent), _) if sent != object::uid(object) => {
            Err(conflict("UID", sent, object::uid(object)))
        }
        (_, Some(sent)) if sent != revision => Err(conflict("ResourceVersion", sent, revision)),
        _ => Ok(()),
    }
}

pub(super) fn delete_collection(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let deletion = Deletion::of(request)?;
    let (items, revision) = list_matching(inner, request);
    for item in items.iter().filter(|_| !deletion.dry_run) {
        let key = crate::api::store::Key {
            namespace: object::namespace(item).to_owned(),
            name: object::name(item).to_owned(),
        };
        delete_stubbornly(
            inner,
            &Place {
                shard: request.target.kind.shard,
                key,
            },
            object::uid(item),
            &deletion,
        )?;
    }
    Ok(Answer::List {
        items,
        revision,
        proceed: None,
    })
}

/// Deletes an object as a controller would: with defaults, whoever else writes it.
pub(crate) fn remove_object(inner: &Arc<Inner>, place: &Place, uid: &str) -> Result<(), ApiError> {
    delete_stubbornly(inner, place, uid, &Deletion::default())
}

fn delete_stubbornly(
    inner: &Arc<Inner>,
    place: &Place,
    uid: &str,
    deletion: &Deletion,
) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        let Some(object) = inner
            .store
            .get(place)
            .filter(|object| object::uid(object) == uid)
        else {
            return Ok(());
        };
        if !matches!(delete_once(inner, place, &object, deletion)?, Deleted::Lost) {
            break;
        }
    }
    Ok(())
}

enum Deleted {
    Gone,
    /// Marked, or marked before; somebody has to finish.
    Later {
        object: Arc<Value>,
        changed: bool,
    },
    Lost,
}

fn delete_once(
    inner: &Arc<Inner>,
    place: &Place,
    object: &Arc<Value>,
    deletion: &Deletion,
) -> Result<Deleted, ApiError> {
    let grace = grace(inner, place, object, deletion);
    let waits = grace.is_some_and(|grace| grace > 0) || object::has_finalizers(object);
    let is_namespace =
        namespace_place(inner, &place.key.name).is_some_and(|namespace| namespace == *place);
    if !waits && !is_namespace {
        return Ok(
            match inner.store.remove(place, object, Value::clone(object))? {
                Swap::Lost => Deleted::Lost,
                Swap::Done(last) => {
                    collect::after_removal(inner, place, &last, deletion.orphan)?;
                    Deleted::Gone
                }
            },
        );
    }
    let marked = mark(inner, object, grace.unwrap_or(0), is_namespace);
    if marked == **object {
        return Ok(Deleted::Later {
            object: object.clone(),
            changed: false,
        });
    }
    match inner.store.swap(place, Some(object), marked)? {
        Swap::Lost => Ok(Deleted::Lost),
        Swap::Done(object) if is_namespace => {
            collect::empty_namespace(inner, &place.key.name)?;
            Ok(Deleted::Later {
                object,
                changed: true,
            })
        }
        Swap::Done(object) => Ok(Deleted::Later {
            object,
            changed: true,
        }),
    }
}

/// The seconds a Pod is given to end; nothing else has grace. One that runs nowhere needs none.
fn grace(inner: &Inner, place: &Place, pod: &Value, deletion: &Deletion) -> Option<u64> {
    inner
        .registry
        .stored_in(place.shard)
        .filter(|kind| kind.is_pod())?;
    let finished = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if finished || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Some(0);
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(30);
    let asked = deletion.grace.unwrap_or(own).min(LONGEST_GRACE);
    let running = pod["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .filter(|_| object::is_deleting(pod));
    Some(running.map_or(asked, |running| {
        running.min(deletion.grace.unwrap_or(running))
    }))
}

/// The object with the signs of its deletion. A second delete may shorten the grace, never lengthen it.
fn mark(inner: &Inner, object: &Value, grace: u64, is_namespace: bool) -> Value {
    let mut marked = object.clone();
    let shortened = object["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .is_some_and(|running| grace < running);
    if !object::is_deleting(object) || shortened {
        set_meta(
            &mut marked,
            "deletionTimestamp",
            stamp_in(&inner.clock, grace),
        );
        set_meta(&mut marked, "deletionGracePeriodSeconds", grace);
    }
    if !object::is_deleting(object) && object::generation(object) > 0 {
        set_meta(
            &mut marked,
            "generation",
            object::generation(object).saturating_add(1),
        );
    }
    if is_namespace {
        object::child_mut(as_object(&mut marked), "status")
            .insert("phase".to_owned(), json!("Terminating"));
    }
    marked
}

/// Removes an object whose last finalizer was taken off. A Pod that still has grace stays until the node is done.
pub(super) fn remove_if_done(
    inner: &Arc<Inner>,
    place: &Place,
    object: &Arc<Value>,
) -> Result<(), ApiError> {
    let grace = object["metadata"]["deletionGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(0);
    if object::is_deleting(object) && !object::has_finalizers(object) && grace == 0 {
        remove_object(inner, place, object::uid(object))?;
    }
    Ok(())
}
