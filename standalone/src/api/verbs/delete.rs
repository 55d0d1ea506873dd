//! Delete and delete collection: preconditions, dry run and the response.

use serde_json::{Value, json};

use crate::api::{
    ApiState, MAX_WRITE_ATTEMPTS,
    deletion::{DeleteOptions, DeleteOutcome},
    error::{ApiError, success},
    garbage_collector,
    listing::list_matching,
    object,
    request::Request,
    store::ObjectKey,
    verb_result::VerbResult,
};

pub(super) fn delete(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let options = DeleteOptions::of(request)?;
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let (object_key, object) = super::current(state, request)?;
        check_preconditions(request, &options, &object)?;
        if options.dry_run {
            return Ok(VerbResult::object(object, false));
        }
        match garbage_collector::delete(state, &object_key, &object, &options)? {
            DeleteOutcome::Gone(_) => return Ok(deleted_status(request, &object)),
            DeleteOutcome::Terminating { object, changed } => {
                return Ok(VerbResult::object(object, changed));
            }
            DeleteOutcome::Lost => {}
        }
    }
    Err(request.target.contended())
}

fn deleted_status(request: &Request, object: &Value) -> VerbResult {
    let kind = &request.target.kind;
    let details = json!({
        "name": object::name(object), "group": kind.group, "kind": kind.plural,
        "uid": object::uid(object),
    });
    VerbResult::Status {
        status: success(&details),
        changed: true,
    }
}

fn check_preconditions(
    request: &Request,
    options: &DeleteOptions,
    object: &Value,
) -> Result<(), ApiError> {
    let conflict = |field: &str, sent: &str, found: &str| ApiError::Conflict {
        of: request.target.kind.resource_group(),
        name: object::name(object).to_owned(),
        message: format!(
            "Precondition failed: {field} in precondition: {sent}, {field} in object meta: {found}"
        ),
    };
    let revision = object::resource_version(object).unwrap_or_default();
    match (&options.uid, &options.revision) {
        (Some(sent), _) if sent != object::uid(object) => {
            Err(conflict("UID", sent, object::uid(object)))
        }
        (_, Some(sent)) if sent != revision => Err(conflict("ResourceVersion", sent, revision)),
        _ => Ok(()),
    }
}

pub(super) fn delete_collection(
    state: &ApiState,
    request: &Request,
) -> Result<VerbResult, ApiError> {
    let options = DeleteOptions::of(request)?;
    let (items, revision) = list_matching(state, request);
    for item in items.iter().filter(|_| !options.dry_run) {
        let object_key = ObjectKey::of(request.target.kind.shard, item);
        garbage_collector::delete_with_retry(state, object_key, item, &options)?;
    }
    Ok(VerbResult::List {
        items,
        revision,
        continue_token: None,
    })
}
