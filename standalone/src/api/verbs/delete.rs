//! Delete and delete collection: preconditions, dry run and the response.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::api::{
    ApiState, MAX_WRITE_ATTEMPTS,
    deletion::{DeleteOptions, DeleteOutcome},
    encode::{self, list_response, object_response},
    error::ApiError,
    garbage_collector,
    listing::list_matching,
    object,
    request::Request,
    store::ObjectKey,
};

pub(super) fn delete(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let options = DeleteOptions::of(request)?;
    let kind = &request.target.kind;
    let respond = |object: &Value| object_response(state, request, StatusCode::OK, object, &[]);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let (key, object) = super::current(state, request)?;
        check_preconditions(request, &options, &object)?;
        if options.dry_run {
            return Ok(respond(&object));
        }
        match garbage_collector::delete(state, &key, &object, &options)? {
            DeleteOutcome::Gone(_) => {
                let details = json!({"name": object::name(&object), "group": kind.group,
                    "kind": kind.plural, "uid": object::uid(&object)});
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Success", "details": details});
                return Ok(encode::json(StatusCode::OK, &status));
            }
            DeleteOutcome::Terminating(object) => return Ok(respond(&object)),
            DeleteOutcome::Lost => {}
        }
    }
    Err(request.target.contended())
}

fn check_preconditions(
    request: &Request,
    options: &DeleteOptions,
    object: &Value,
) -> Result<(), ApiError> {
    let (name, uid) = (object::name(object), object::uid(object));
    let revision = object::resource_version(object).unwrap_or_default();
    for (field, sent, found) in [
        ("UID", &options.uid, uid),
        ("ResourceVersion", &options.revision, revision),
    ] {
        if let Some(sent) = sent.as_deref().filter(|sent| *sent != found) {
            return Err(request
                .target
                .kind
                .failed_precondition(name, field, sent, found));
        }
    }
    Ok(())
}

pub(super) fn delete_collection(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let options = DeleteOptions::of(request)?;
    let (items, revision) = list_matching(state, request);
    for item in items.iter().filter(|_| !options.dry_run) {
        let key = ObjectKey::of(request.target.kind.shard, item);
        garbage_collector::delete_with_retry(state, key, item, options.clone())?;
    }
    Ok(list_response(state, request, &items, revision, None))
}
