//! Execution of verbs. Writers prepare an object from what they read and swap it in, again after a
//! lost race.

mod bootstrap;
mod delete;
mod pod_subresources;
mod scale;
mod write;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{
    ApiState,
    error::ApiError,
    garbage_collector, listing,
    request::{Request, Subresource, Verb},
    store::ObjectKey,
    verb_result::VerbResult,
};

/// Executes get and list.
pub(super) async fn read(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    match (request.verb, request.target.subresource) {
        (Verb::Get, Some(Subresource::Log)) => pod_subresources::logs(state, request).await,
        (Verb::Get, Some(Subresource::Scale)) => scale::get(state, request),
        (Verb::Get, None | Some(Subresource::Status)) => {
            let (_, object) = current(state, request)?;
            Ok(VerbResult::object(object, false))
        }
        (Verb::List, _) => listing::list(state, request),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// Executes a verb that writes.
pub(super) fn write(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let target = &request.target;
    if target.kind.read_only {
        return Err(ApiError::MethodNotAllowed);
    }
    match (request.verb, target.subresource) {
        (Verb::Update | Verb::Patch, Some(Subresource::Scale)) => scale::set(state, request),
        (Verb::Create, Some(Subresource::Binding)) => pod_subresources::bind(state, request),
        (Verb::Create, Some(Subresource::Eviction)) => pod_subresources::evict(state, request),
        (Verb::Create, None) => write::create(state, request),
        (Verb::Update, None | Some(Subresource::Status | Subresource::Finalize)) => {
            write::replace(state, request)
        }
        (Verb::Patch, None | Some(Subresource::Status)) => write::patch(state, request),
        (Verb::Delete, None) => delete::delete(state, request),
        (Verb::DeleteCollection, None) => delete::delete_collection(state, request),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// Creates the default namespace and the CRDs, and collects the garbage of a crash.
pub(super) fn bootstrap(state: &ApiState, definitions: &[CustomResourceDefinition]) {
    for result in [
        bootstrap::ensure_default_namespace(state),
        bootstrap::publish_definitions(state, definitions),
        garbage_collector::collect_orphans(state),
    ] {
        if let Err(error) = result {
            tracing::error!(%error, "cannot prepare the embedded API");
        }
    }
}

fn current(state: &ApiState, request: &Request) -> Result<(ObjectKey, Arc<Value>), ApiError> {
    let object_key = request.target.object_key();
    let object = state
        .store
        .get(&object_key)
        .ok_or_else(|| request.target.not_found())?;
    Ok((object_key, object))
}
