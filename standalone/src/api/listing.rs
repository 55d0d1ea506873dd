//! Lists and their pages. A continue token is valid until its revision is compacted.

use std::sync::Arc;

use serde_json::Value;

use super::{
    ApiState,
    error::ApiError,
    request::Request,
    store::{Key, ObjectKey},
    verb_result::VerbResult,
};

/// Text of a real server for a continue token that is too old.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter.";

/// Lists objects, in pages if requested. The result is always current, which satisfies any older
/// `resourceVersion`.
pub(super) fn list(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let token = request.options.continue_token.as_deref();
    if request.options.limit == 0 && token.is_none() {
        let (items, revision) = list_matching(state, request);
        return Ok(VerbResult::List {
            items,
            revision,
            continue_token: None,
        });
    }
    let token = token.map(ContinueToken::parse).transpose()?;
    let shard = request.target.kind.shard;
    let is_expired = |token: &ContinueToken| {
        let compacted = state.store.compacted_after(shard, token.revision);
        compacted.is_some()
    };
    if token.as_ref().is_some_and(is_expired) {
        return Err(ApiError::Expired(EXPIRED.to_owned()));
    }
    Ok(page(state, request, token.as_ref()))
}

/// Returns the selected objects and the revision of the store.
pub(super) fn list_matching(state: &ApiState, request: &Request) -> (Vec<Arc<Value>>, u64) {
    let target = &request.target;
    let (mut items, revision) = state
        .store
        .list(target.kind.shard, target.namespace.as_deref());
    items.retain(|item| request.options.selector.matches(item));
    (items, revision)
}

/// Continue token: revision of the first page and key of the last item. A watch from that
/// revision misses nothing that happened between the pages.
struct ContinueToken {
    revision: u64,
    last: Key,
}

impl ContinueToken {
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

fn page(state: &ApiState, request: &Request, token: Option<&ContinueToken>) -> VerbResult {
    let target = &request.target;
    let page_size = match request.options.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let (mut items, now) = state.store.list_after(
        target.kind.shard,
        target.namespace.as_deref(),
        token.map(|token| &token.last),
        page_size.saturating_add(1),
        |item| request.options.selector.matches(item),
    );
    let revision = token.map_or(now, |token| token.revision);
    let more = items.len() > page_size;
    items.truncate(page_size);
    let last = items.last().filter(|_| more);
    let last = last.map(|item| ObjectKey::of(target.kind.shard, item).key);
    let continue_token = last.map(|last| ContinueToken { revision, last }.to_text());
    VerbResult::List {
        items,
        revision,
        continue_token,
    }
}
