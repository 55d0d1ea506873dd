//! Create, replace, patch.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::{ATTEMPTS, Answer, delete::remove_if_done, read};
use crate::api::{
    Inner,
    admission::{self, Admitted, NewObject},
    collect,
    error::ApiError,
    expiry,
    object::{self, set_meta},
    patch::{self, Patch},
    protobuf,
    registry::Kind,
    request::{FieldValidation, Request, Subresource},
    respond::encode::view,
    store::{Key, Place, Swap},
};

pub(super) fn create(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let body = decode(request)?;
    create_object(inner, request, body)
}

pub(super) fn decode(request: &Request) -> Result<Value, ApiError> {
    match request.content_type.as_str() {
        "" | "application/json" => patch::json_object(&request.body),
        "application/yaml" => patch::yaml_object(&request.body),
        protobuf::MEDIA_TYPE => protobuf::decode(&request.body),
        _ => Err(ApiError::UnsupportedMediaType(
            "application/json, application/yaml".to_owned(),
        )),
    }
}

fn create_object(inner: &Arc<Inner>, request: &Request, body: Value) -> Result<Answer, ApiError> {
    let target = &request.target;
    let kind = &target.kind;
    if kind.namespaced && target.namespace.is_none() {
        return Err(ApiError::BadRequest(
            "an empty namespace may not be set during creation".to_owned(),
        ));
    }
    check_namespace(inner, target.namespace.as_deref())?;
    let namespace = target.namespace.as_deref();
    let new = NewObject {
        kind,
        namespace,
        clock: &inner.clock,
        validation: request.options.field_validation,
    };
    let Admitted { object, warnings } = admission::prepare_create(&new, body)?;
    let place = target.place_of(object::name(&object));
    let stored = store_view(kind, object);
    if request.options.dry_run {
        return match inner.store.get(&place) {
            Some(_) => Err(already_exists(kind, &place)),
            None => Ok(Answer::Object {
                object: Arc::new(stored),
                created: true,
                changed: false,
                warnings,
            }),
        };
    }
    match inner.store.swap(&place, None, stored)? {
        Swap::Lost => Err(already_exists(kind, &place)),
        Swap::Done(object) => {
            collect::collect_if_orphan(inner, &place, &object)?;
            expiry::after_creation(inner, &place)?;
            Ok(Answer::Object {
                object,
                created: true,
                changed: true,
                warnings,
            })
        }
    }
}

fn already_exists(kind: &Kind, place: &Place) -> ApiError {
    ApiError::AlreadyExists {
        of: kind.resource_group(),
        name: place.key.name.clone(),
    }
}

fn check_namespace(inner: &Inner, namespace: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = namespace else { return Ok(()) };
    let of = || ApiError::NotFound {
        of: crate::api::Group {
            group: String::new(),
            item: "namespaces".to_owned(),
        },
        name: name.to_owned(),
    };
    let found = inner
        .store
        .get(&namespace_place(inner, name).ok_or_else(of)?)
        .ok_or_else(of)?;
    if object::is_deleting(&found) {
        return Err(ApiError::Forbidden(format!(
            "unable to create new content in namespace {name} because it is being terminated"
        )));
    }
    Ok(())
}

pub(super) fn namespace_place(inner: &Inner, name: &str) -> Option<Place> {
    let key = Key {
        namespace: String::new(),
        name: name.to_owned(),
    };
    Some(Place {
        shard: inner.registry.shard("namespaces")?,
        key,
    })
}

pub(super) fn replace(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let body = decode(request)?;
    if body["metadata"]["name"].as_str().is_none() {
        return Err(ApiError::BadRequest("name must be provided".to_owned()));
    }
    change(inner, request, |_| Ok(body.clone()))
}

pub(super) fn patch(inner: &Arc<Inner>, request: &Request) -> Result<Answer, ApiError> {
    let kind = &request.target.kind;
    let patch = Patch::parse(&request.content_type, &request.body, kind)?;
    if patch.is_apply() && request.options.field_manager.is_none() {
        return Err(ApiError::BadRequest("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".to_owned()));
    }
    if patch.is_apply()
        && request.target.subresource.is_none()
        && inner.store.get(&request.target.place()).is_none()
    {
        return apply_new(inner, request, &patch);
    }
    change(inner, request, |current| {
        patch.apply(current, kind, &applier(request))
    })
}

/// An apply of what is not there makes it.
fn apply_new(inner: &Arc<Inner>, request: &Request, patch: &Patch) -> Result<Answer, ApiError> {
    let mut object = patch.apply(&json!({}), &request.target.kind, &applier(request))?;
    if object::meta(&object, "name").is_none() {
        set_meta(
            &mut object,
            "name",
            request.target.name.as_deref().unwrap_or_default(),
        );
    }
    create_object(inner, request, object)
}

/// Status and the rest are applied by the same people without owning each other's fields.
fn applier(request: &Request) -> String {
    match request.target.subresource {
        Some(Subresource::Status) => format!("{}/status", request.manager()),
        _ => request.manager().to_owned(),
    }
}

/// Reads, changes and swaps until nobody was faster.
pub(super) fn change(
    inner: &Arc<Inner>,
    request: &Request,
    edit: impl Fn(&Value) -> Result<Value, ApiError>,
) -> Result<Answer, ApiError> {
    let (kind, options) = (&request.target.kind, &request.options);
    for _ in 0..ATTEMPTS {
        let (place, stored) = super::current(inner, request)?;
        let current = view(kind, &stored);
        let next = edit(&current)?;
        let Admitted { object, warnings } = admission::prepare_update(
            kind,
            &current,
            next,
            request.target.subresource,
            options.field_validation,
        )?;
        if object == *current || options.dry_run {
            let object = if object == *current {
                stored
            } else {
                Arc::new(store_view(kind, object))
            };
            return Ok(Answer::Object {
                object,
                created: false,
                changed: false,
                warnings,
            });
        }
        if let Swap::Done(object) =
            inner
                .store
                .swap(&place, Some(&stored), store_view(kind, object))?
        {
            remove_if_done(inner, &place, &object)?;
            collect::collect_if_orphan(inner, &place, &object)?;
            return Ok(Answer::Object {
                object,
                created: false,
                changed: true,
                warnings,
            });
        }
    }
    Err(contended(request))
}

pub(super) fn contended(request: &Request) -> ApiError {
    let name = request.target.name.clone().unwrap_or_default();
    ApiError::Conflict {
        of: request.target.kind.resource_group(),
        name,
        why: "too many writers".to_owned(),
    }
}

/// The object as it is stored, which for an alias is not how it was sent.
fn store_view(kind: &Kind, object: Value) -> Value {
    match &kind.alias {
        Some(alias) => (alias.to_stored)(&object),
        None => object,
    }
}

pub(super) fn ensure_default_namespace(inner: &Arc<Inner>) -> Result<(), ApiError> {
    let Some(kind) = inner.registry.find("", "v1", "namespaces") else {
        return Ok(());
    };
    let body = json!({"metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}});
    put_new(inner, kind, body)
}

/// Definitions come with the program, so they are not taken from a database of an older one.
pub(super) fn publish_definitions(
    inner: &Arc<Inner>,
    definitions: &[CustomResourceDefinition],
) -> Result<(), ApiError> {
    let Some(kind) = inner
        .registry
        .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    else {
        return Ok(());
    };
    for old in inner.store.list(kind.shard, None).0 {
        let key = Key {
            namespace: String::new(),
            name: object::name(&old).to_owned(),
        };
        inner.store.remove(
            &Place {
                shard: kind.shard,
                key,
            },
            &old,
            Value::clone(&old),
        )?;
    }
    for definition in definitions {
        let mut body = serde_json::to_value(definition)
            .map_err(|error| ApiError::Internal(error.to_string()))?;
        read::establish(&mut body);
        put_new(inner, kind, body)?;
    }
    Ok(())
}

fn put_new(inner: &Arc<Inner>, kind: &Kind, body: Value) -> Result<(), ApiError> {
    let status = body["status"].clone();
    let new = NewObject {
        kind,
        namespace: None,
        clock: &inner.clock,
        validation: FieldValidation::Ignore,
    };
    let mut object = admission::prepare_create(&new, body)?.object;
    if !status.is_null() {
        object::as_object(&mut object).insert("status".to_owned(), status);
    }
    let place = Place {
        shard: kind.shard,
        key: Key {
            namespace: String::new(),
            name: object::name(&object).to_owned(),
        },
    };
    inner.store.swap(&place, None, object)?;
    Ok(())
}
