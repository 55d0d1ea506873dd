//! Lists and their pages. A continue token is valid until its revision is compacted.

use std::sync::Arc;

use axum::response::Response;
use serde_json::Value;

use super::{ApiState, encode::list_response, error::ApiError, request::Request, store::ObjectKey};

/// Text of a real server for a continue token that is too old.
const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter.";

/// Lists objects, in pages if requested. The result is current, so any `resourceVersion` is met.
pub(super) fn list(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let shard = request.target.kind.shard;
    let token = request.options.continue_token.as_deref();
    let token = token.map(|text| parse_token(shard, text)).transpose()?;
    let is_expired =
        |(revision, _): &(u64, _)| state.store.compacted_after(shard, *revision).is_some();
    if token.as_ref().is_some_and(is_expired) {
        return Err(ApiError::Expired(EXPIRED.to_owned()));
    }
    let page_size = match request.options.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let last = token.as_ref().map(|(_, last)| last);
    let (mut items, now) = list_after(state, request, last, page_size.saturating_add(1));
    let revision = token.as_ref().map_or(now, |(revision, _)| *revision);
    let more = items.len() > page_size;
    items.truncate(page_size);
    let last = items
        .last()
        .filter(|_| more)
        .map(|item| ObjectKey::of(shard, item));
    let next = last.map(|last| format!("{revision}.{}/{}", last.namespace, last.name));
    Ok(list_response(state, request, &items, revision, next))
}

/// Returns the selected objects and the revision of the store.
pub(super) fn list_matching(state: &ApiState, request: &Request) -> (Vec<Arc<Value>>, u64) {
    list_after(state, request, None, usize::MAX)
}

fn list_after(
    state: &ApiState,
    request: &Request,
    last: Option<&ObjectKey>,
    limit: usize,
) -> (Vec<Arc<Value>>, u64) {
    let (target, selector) = (&request.target, &request.options.selector);
    let (shard, namespace) = (target.kind.shard, target.namespace.as_deref());
    let matches = |object: &Value| selector.matches(object);
    state
        .store
        .list_after(shard, namespace, last, limit, matches)
}

/// Parses a continue token: revision of the first page and key of the last item. A watch from that
/// revision misses nothing that happened between the pages.
fn parse_token(shard: usize, text: &str) -> Result<(u64, ObjectKey), ApiError> {
    let parts = text.split_once('.').and_then(|(revision, key)| {
        let (namespace, name) = key.split_once('/')?;
        Some((
            revision.parse().ok()?,
            ObjectKey::new(shard, namespace, name),
        ))
    });
    parts.ok_or_else(|| ApiError::BadRequest(format!("invalid continue: {text:?}")))
}
