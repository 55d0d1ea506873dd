//! Get and list.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, current};
use crate::api::{
    Inner,
    error::ApiError,
    object::{self, as_object},
    request::Request,
    store::Key,
};

pub(super) fn get(inner: &Inner, request: &Request) -> Result<Answer, ApiError> {
    let (_, object) = current(inner, request)?;
    Ok(Answer::Object {
        object,
        created: false,
        changed: false,
        warnings: Vec::new(),
    })
}

/// A list is always current: an older `resourceVersion` needs no more than that. It comes in pages if the client wants.
pub(super) fn list(inner: &Inner, request: &Request) -> Result<Answer, ApiError> {
    let limit = request.options.limit;
    let position = request.options.proceed.as_deref();
    if limit == 0 && position.is_none() {
        let (items, revision) = list_matching(inner, request);
        return Ok(Answer::List {
            items,
            revision,
            proceed: None,
        });
    }
    let position = position.map(Position::parse).transpose()?;
    Ok(page(inner, request, limit, position.as_ref()))
}

/// Where a list goes on: after this key. All its pages name the revision of the first one, so whoever watches from
/// there misses nothing that happened while they were read.
struct Position {
    revision: u64,
    last: Key,
}

impl Position {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let parts = text.split_once('.').and_then(|(revision, key)| {
            let (namespace, name) = key.split_once('/')?;
            Some(Self {
                revision: revision.parse().ok()?,
                last: Key {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
            })
        });
        parts.ok_or_else(|| ApiError::BadRequest(format!("invalid continue: {text:?}")))
    }

    fn to_text(&self) -> String {
        let Key { namespace, name } = &self.last;
        format!("{}.{namespace}/{name}", self.revision)
    }
}

fn page(inner: &Inner, request: &Request, limit: usize, position: Option<&Position>) -> Answer {
    let target = &request.target;
    let most = if limit == 0 { usize::MAX } else { limit };
    let (items, now) = inner.store.list_after(
        target.kind.shard,
        target.namespace.as_deref(),
        position.map(|position| &position.last),
        most.saturating_add(1),
        |item| request.options.selector.matches(item),
    );
    let revision = position.map_or(now, |position| position.revision);
    let more = items.len() > most;
    let items: Vec<_> = items.into_iter().take(most).collect();
    let last = items.last().filter(|_| more).map(|item| Key {
        namespace: object::namespace(item).to_owned(),
        name: object::name(item).to_owned(),
    });
    let proceed = last.map(|last| Position { revision, last }.to_text());
    Answer::List {
        items,
        revision,
        proceed,
    }
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
