//! Create, replace, patch.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{
    ApiState, MAX_WRITE_ATTEMPTS,
    admission::{self, Admitted, NewObject},
    deletion::namespace_key,
    error::ApiError,
    event_ttl, garbage_collector,
    object::{self, set_meta},
    patch::{Applier, Patch},
    registry::Kind,
    request::{Request, Subresource},
    store::{ObjectKey, SwapResult},
    verb_result::VerbResult,
};

pub(super) fn create(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    create_object(state, request, request.decode_body()?)
}

fn create_object(state: &ApiState, request: &Request, body: Value) -> Result<VerbResult, ApiError> {
    let target = &request.target;
    let kind = &target.kind;
    if kind.namespaced && target.namespace.is_none() {
        return Err(ApiError::BadRequest(
            "an empty namespace may not be set during creation".to_owned(),
        ));
    }
    check_namespace(state, target.namespace.as_deref())?;
    let namespace = target.namespace.as_deref();
    let new = NewObject {
        kind,
        namespace,
        clock: &state.clock,
        validation: request.options.field_validation,
    };
    let Admitted { object, warnings } = admission::prepare_create(&new, body)?;
    let object_key = target.key_of(object::name(&object));
    let stored = kind.to_stored(object);
    if request.options.dry_run {
        return match state.store.get(&object_key) {
            Some(_) => Err(already_exists(kind, &object_key)),
            None => Ok(VerbResult::Object {
                object: Arc::new(stored),
                created: true,
                changed: false,
                warnings,
            }),
        };
    }
    match state.store.swap(&object_key, None, stored)? {
        SwapResult::Lost => Err(already_exists(kind, &object_key)),
        SwapResult::Done(object) => {
            garbage_collector::collect_if_orphan(state, &object_key, &object)?;
            event_ttl::after_creation(state, &object_key)?;
            Ok(VerbResult::Object {
                object,
                created: true,
                changed: true,
                warnings,
            })
        }
    }
}

fn already_exists(kind: &Kind, object_key: &ObjectKey) -> ApiError {
    ApiError::AlreadyExists {
        of: kind.resource_group(),
        name: object_key.key.name.clone(),
    }
}

fn check_namespace(state: &ApiState, namespace: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = namespace else { return Ok(()) };
    let of = || ApiError::NotFound {
        of: crate::api::QualifiedName {
            group: String::new(),
            item: "namespaces".to_owned(),
        },
        name: name.to_owned(),
    };
    let found = state
        .store
        .get(&namespace_key(state, name).ok_or_else(of)?)
        .ok_or_else(of)?;
    if object::is_deleting(&found) {
        return Err(ApiError::Forbidden(format!(
            "unable to create new content in namespace {name} because it is being terminated"
        )));
    }
    Ok(())
}

pub(super) fn replace(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let body = request.decode_body()?;
    if body["metadata"]["name"].as_str().is_none() {
        return Err(ApiError::BadRequest("name must be provided".to_owned()));
    }
    change(state, request, |_| Ok(body.clone()))
}

pub(super) fn patch(state: &ApiState, request: &Request) -> Result<VerbResult, ApiError> {
    let kind = &request.target.kind;
    let patch = Patch::parse(&request.content_type, &request.body, kind)?;
    if patch.is_apply() && request.options.field_manager.is_none() {
        return Err(ApiError::BadRequest(
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: \
            Required value: is required for apply patch"
                .to_owned(),
        ));
    }
    if patch.is_apply()
        && request.target.subresource.is_none()
        && state.store.get(&request.target.object_key()).is_none()
    {
        return apply_new(state, request, &patch);
    }
    change(state, request, |current| {
        patch.apply(current, kind, &applier(request))
    })
}

/// Creates the object of an apply request that does not exist yet.
fn apply_new(state: &ApiState, request: &Request, patch: &Patch) -> Result<VerbResult, ApiError> {
    let mut object = patch.apply(&json!({}), &request.target.kind, &applier(request))?;
    if object::meta(&object, "name").is_none() {
        set_meta(
            &mut object,
            "name",
            request.target.name.as_deref().unwrap_or_default(),
        );
    }
    create_object(state, request, object)
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

/// Reads, edits and swaps until no other writer interferes.
pub(super) fn change(
    state: &ApiState,
    request: &Request,
    edit: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<VerbResult, ApiError> {
    let (kind, options) = (&request.target.kind, &request.options);
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let (object_key, stored) = super::current(state, request)?;
        let current = kind.to_own(&stored);
        let next = edit(&current)?;
        let Admitted { object, warnings } = admission::prepare_update(
            kind,
            &current,
            next,
            request.target.subresource,
            options.field_validation,
        )?;
        if object == *current {
            return Ok(VerbResult::Object {
                object: stored,
                created: false,
                changed: false,
                warnings,
            });
        }
        if options.dry_run {
            return Ok(VerbResult::Object {
                object: Arc::new(kind.to_stored(object)),
                created: false,
                changed: false,
                warnings,
            });
        }
        if let SwapResult::Done(object) =
            state
                .store
                .swap(&object_key, Some(&stored), kind.to_stored(object))?
        {
            garbage_collector::remove_if_done(state, &object_key, &object)?;
            garbage_collector::collect_if_orphan(state, &object_key, &object)?;
            return Ok(VerbResult::Object {
                object,
                created: false,
                changed: true,
                warnings,
            });
        }
    }
    Err(request.target.contended())
}
