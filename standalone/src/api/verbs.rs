//! What each verb does. Reads look into the store; writes prepare an object from what they read and swap it in, again
//! if somebody was faster.

mod delete;
mod pods;
mod read;
mod scale;
mod write;

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub(crate) use delete::remove_object;
pub(crate) use read::list_matching;

use super::{
    Inner, collect,
    error::ApiError,
    request::{Request, Subresource, Verb},
    store::{JournalError, Place},
    watch,
};

/// The result of a request, before it has a form.
#[derive(Debug)]
pub(crate) enum Answer {
    Object {
        object: Arc<Value>,
        created: bool,
        changed: bool,
        warnings: Vec<String>,
    },
    List {
        items: Vec<Arc<Value>>,
        revision: u64,
        /// What to ask for to get the next page, if there is one.
        proceed: Option<String>,
    },
    Status {
        status: Value,
        changed: bool,
    },
    /// Something else than the resource itself, like a Scale.
    Plain(Value),
    Text(Bytes),
    Watch(Body),
}

/// How often a write that lost a race is prepared anew.
const ATTEMPTS: usize = 32;

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        tracing::error!(%error, "a change could not be stored");
        Self::Internal(error.to_string())
    }
}

pub(crate) async fn execute(inner: &Arc<Inner>, request: Request) -> Result<Answer, ApiError> {
    let target = &request.target;
    if request.verb.is_write() && target.kind.read_only {
        return Err(ApiError::MethodNotAllowed);
    }
    match (request.verb, target.subresource) {
        (Verb::Get, Some(Subresource::Log)) => pods::logs(inner, &request).await,
        (Verb::Get, Some(Subresource::Scale)) => scale::get(inner, &request),
        (Verb::Update | Verb::Patch, Some(Subresource::Scale)) => scale::set(inner, &request),
        (Verb::Create, Some(Subresource::Binding)) => pods::bind(inner, &request),
        (Verb::Create, Some(Subresource::Eviction)) => pods::evict(inner, &request),
        (Verb::Get, None | Some(Subresource::Status)) => read::get(inner, &request),
        (Verb::List, _) => read::list(inner, &request),
        (Verb::Watch, _) => Ok(Answer::Watch(watch::stream(inner, request)?)),
        (Verb::Create, None) => write::create(inner, &request),
        (Verb::Update, None | Some(Subresource::Status | Subresource::Finalize)) => {
            write::replace(inner, &request)
        }
        (Verb::Patch, None | Some(Subresource::Status)) => write::patch(inner, &request),
        (Verb::Delete, None) => delete::delete(inner, &request),
        (Verb::DeleteCollection, None) => delete::delete_collection(inner, &request),
        _ => Err(ApiError::MethodNotAllowed),
    }
}

/// What exists before the first request: the namespace everybody uses, and the definitions of the custom resources.
/// Garbage that a crash left is collected too.
pub(crate) fn bootstrap(inner: &Arc<Inner>, definitions: &[CustomResourceDefinition]) {
    for result in [
        write::ensure_default_namespace(inner),
        write::publish_definitions(inner, definitions),
        collect::sweep(inner),
    ] {
        if let Err(error) = result {
            tracing::error!(%error, "the embedded API could not be prepared");
        }
    }
}

fn current(inner: &Inner, request: &Request) -> Result<(Place, Arc<Value>), ApiError> {
    let place = request.target.place();
    let object = inner
        .store
        .get(&place)
        .ok_or_else(|| request.target.not_found())?;
    Ok((place, object))
}
