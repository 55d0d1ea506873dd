//! Execution of verbs. Writers prepare an object from what they read and swap it in, again after a
//! lost race.

mod delete;
mod pod_subresources;
mod scale;
mod sessions;
mod write;

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

pub(super) use self::sessions::open_session;

use super::{
    ApiState,
    encode::object_response,
    error::ApiError,
    listing,
    request::{Request, Subresource, Verb},
    store::ObjectKey,
};

/// Executes get and list.
pub(super) async fn read(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    match (request.verb, request.target.subresource) {
        (Verb::Get, Some(Subresource::Log)) => pod_subresources::logs(state, request).await,
        (Verb::Get, Some(Subresource::Scale)) => scale::get(state, request),
        (Verb::Get, None | Some(Subresource::Status)) => {
            let (_, object) = current(state, request)?;
            Ok(object_response(
                state,
                request,
                StatusCode::OK,
                &object,
                &[],
            ))
        }
        (Verb::List, _) => listing::list(state, request),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

pub(super) fn write(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let target = &request.target;
    if target.kind.read_only {
        return Err(ApiError::MethodNotAllowed);
    }
    match (request.verb, target.subresource) {
        (Verb::Update | Verb::Patch, Some(Subresource::Scale)) => scale::set(state, request),
        (Verb::Create, Some(Subresource::Binding)) => pod_subresources::bind(state, request),
        (Verb::Create, Some(Subresource::Eviction)) => pod_subresources::evict(state, request),
        (Verb::Create, None) => write::create(state, request, request.decode_body()?),
        (Verb::Update, None | Some(Subresource::Status | Subresource::Finalize)) => {
            write::replace(state, request)
        }
        (Verb::Patch, None | Some(Subresource::Status | Subresource::Resize)) => {
            write::patch(state, request)
        }
        (Verb::Delete, None) => delete::delete(state, request),
        (Verb::DeleteCollection, None) => delete::delete_collection(state, request),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

fn current(state: &ApiState, request: &Request) -> Result<(ObjectKey, Arc<Value>), ApiError> {
    let key = request.target.object_key();
    match state.store.get(&key) {
        Some(object) => Ok((key, object)),
        None => Err(request.target.kind.not_found(&key.name)),
    }
}
