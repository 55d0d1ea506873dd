//! Create, replace, patch.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use crate::api::{
    ApiState, MAX_WRITE_ATTEMPTS, admission,
    encode::object_response,
    error::{ApiError, QualifiedName},
    event_ttl, garbage_collector,
    object::{self, set_meta},
    patch::{Applier, Patch},
    registry::NAMESPACES,
    request::{Request, Subresource},
    store::ObjectKey,
};

pub(super) fn create(
    state: &ApiState,
    request: &Request,
    body: Value,
) -> Result<Response, ApiError> {
    let (target, options) = (&request.target, &request.options);
    let (kind, namespace) = (&target.kind, target.namespace.as_deref());
    match namespace {
        Some(namespace) => check_namespace(state, namespace)?,
        None if kind.namespaced => {
            let message = "an empty namespace may not be set during creation";
            return Err(ApiError::BadRequest(message.to_owned()));
        }
        None => {}
    }
    let (now, validation) = (state.clock.now(), options.field_validation);
    let (object, warnings) = admission::prepare_create(kind, namespace, now, validation, body)?;
    let key = target.key_of(object::name(&object));
    let stored = kind.to_stored(object);
    let created = if options.dry_run {
        state.store.get(&key).is_none().then(|| Arc::new(stored))
    } else {
        state.store.swap(&key, None, stored)?
    };
    let created = created.ok_or_else(|| ApiError::AlreadyExists {
        of: kind.resource_group(),
        name: key.name.clone(),
    })?;
    if !options.dry_run {
        garbage_collector::collect_if_orphan(state, &key, &created)?;
        event_ttl::after_creation(state, &key)?;
    }
    let status = StatusCode::CREATED;
    Ok(object_response(state, request, status, &created, &warnings))
}

fn check_namespace(state: &ApiState, name: &str) -> Result<(), ApiError> {
    let namespace = state.store.get(&ObjectKey::new(NAMESPACES, "", name));
    let namespace = namespace.ok_or_else(|| ApiError::NotFound {
        of: QualifiedName {
            group: String::new(),
            item: "namespaces".to_owned(),
        },
        name: name.to_owned(),
    })?;
    if object::is_deleting(&namespace) {
        return Err(ApiError::Forbidden(format!(
            "unable to create new content in namespace {name} because it is being terminated"
        )));
    }
    Ok(())
}

pub(super) fn replace(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let body = request.decode_body()?;
    if body["metadata"]["name"].as_str().is_none() {
        return Err(ApiError::BadRequest("name must be provided".to_owned()));
    }
    change_and_respond(state, request, |_| Ok(body.clone()))
}

pub(super) fn patch(state: &ApiState, request: &Request) -> Result<Response, ApiError> {
    let target = &request.target;
    let kind = &target.kind;
    let patch = Patch::parse(&request.content_type, &request.body, kind)?;
    if matches!(patch, Patch::Apply(_)) {
        if request.options.field_manager.is_none() {
            let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: \
                Required value: is required for apply patch";
            return Err(ApiError::BadRequest(message.to_owned()));
        }
        let key = target.object_key();
        if target.subresource.is_none() && state.store.get(&key).is_none() {
            let mut object = patch.apply(&json!({}), kind, &applier(request))?;
            if object::name(&object).is_empty() {
                set_meta(&mut object, "name", key.name);
            }
            return create(state, request, object);
        }
    }
    change_and_respond(state, request, |current| {
        patch.apply(current, kind, &applier(request))
    })
}

/// Field manager of an apply. Status has a separate one, because the same client applies both.
fn applier(request: &Request) -> Applier {
    let manager = match request.target.subresource {
        Some(Subresource::Status) => format!("{}/status", request.manager()),
        _ => request.manager().to_owned(),
    };
    Applier {
        manager,
        force: request.options.force,
    }
}

fn change_and_respond(
    state: &ApiState,
    request: &Request,
    edit: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Response, ApiError> {
    let (object, warnings) = change(state, request, edit)?;
    Ok(object_response(
        state,
        request,
        StatusCode::OK,
        &object,
        &warnings,
    ))
}

/// Edits and swaps until no other writer interferes. Returns the stored object and the warnings.
pub(super) fn change(
    state: &ApiState,
    request: &Request,
    edit: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<(Arc<Value>, Vec<String>), ApiError> {
    let (kind, options) = (&request.target.kind, &request.options);
    let (subresource, validation) = (request.target.subresource, options.field_validation);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let (key, stored) = super::current(state, request)?;
        let current = kind.to_own(&stored);
        let next = edit(&current)?;
        let (object, warnings) =
            admission::prepare_update(kind, &current, next, subresource, validation)?;
        if object == *current {
            return Ok((stored, warnings));
        }
        let next = kind.to_stored(object);
        if options.dry_run {
            return Ok((Arc::new(next), warnings));
        }
        if let Some(object) = state.store.swap(&key, Some(&stored), next)? {
            garbage_collector::remove_if_done(state, &key, &object)?;
            garbage_collector::collect_if_orphan(state, &key, &object)?;
            return Ok((object, warnings));
        }
    }
    Err(request.target.contended())
}
