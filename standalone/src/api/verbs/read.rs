//! Get and list.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, current};
use crate::api::{Inner, error::ApiError, object::as_object, request::Request};

pub(super) fn get(inner: &Inner, request: &Request) -> Result<Answer, ApiError> {
    let (_, object) = current(inner, request)?;
    Ok(Answer::Object {
        object,
        created: false,
        changed: false,
        warnings: Vec::new(),
    })
}

/// A list is always complete and current: `limit`, `continue` and an older `resourceVersion` need no more than that.
pub(super) fn list(inner: &Inner, request: &Request) -> Answer {
    let (items, revision) = list_matching(inner, request);
    Answer::List { items, revision }
}

/// The objects a request selects, and the revision they are from.
pub(crate) fn list_matching(inner: &Inner, request: &Request) -> (Vec<Arc<Value>>, u64) {
    let target = &request.target;
    let (mut items, revision) = inner
        .store
        .list(target.kind.shard, target.namespace.as_deref());
    items.retain(|item| request.options.selector.matches(item));
    (items, revision)
}

/// The status of a definition that is served.
pub(super) fn establish(definition: &mut Value) {
    let condition =
        |kind: &str| json!({"type": kind, "status": "True", "reason": "Embedded", "message": ""});
    let names = definition["spec"]["names"].clone();
    let versions: Vec<_> = definition["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|version| version["name"].clone())
        .collect();
    let status = json!({"conditions": [condition("NamesAccepted"), condition("Established")], "acceptedNames": names, "storedVersions": versions});
    as_object(definition).insert("status".to_owned(), status);
}
