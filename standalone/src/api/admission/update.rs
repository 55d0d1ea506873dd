//! Admission of updates: the parts of an object that the request may change, and no-op detection.

use serde_json::{Value, json};

use super::{
    Admitted, builtin_rules, field_validation::validate_fields, has_generation,
    metadata_validation, reject,
};
use crate::api::{
    error::{ApiError, Cause, CauseReason},
    object::{self, as_object, copy_field, set_meta},
    registry::Kind,
    request::{FieldValidation, Subresource},
};

/// Fields of `metadata` that never change after creation.
const FIXED: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
];

/// Returns the object to store in place of `current`; equal to `current` if nothing changes.
pub(crate) fn prepare_update(
    kind: &Kind,
    current: &Value,
    mut next: Value,
    subresource: Option<Subresource>,
    validation: FieldValidation,
) -> Result<Admitted, ApiError> {
    let warnings = validate_fields(kind, &mut next, validation)?;
    check_preconditions(kind, current, &next)?;
    let mut object = match subresource {
        Some(Subresource::Status) => with_status(current, &next),
        _ => with_spec(kind, current, next),
    };
    builtin_rules::complete(kind, &mut object);
    if let Some(schema) = kind.schema() {
        schema.fill_defaults(&mut object);
    }
    if object != *current {
        check(kind, current, &object)?;
        count_generation(kind, current, &mut object);
    }
    Ok(Admitted { object, warnings })
}

fn check_preconditions(kind: &Kind, current: &Value, next: &Value) -> Result<(), ApiError> {
    let of = || (kind.resource_group(), object::name(current).to_owned());
    let differs = |field| {
        object::meta(next, field).is_some_and(|sent| Some(sent) != object::meta(current, field))
    };
    if differs("name") || differs("namespace") {
        return Err(ApiError::BadRequest(
            "the name of the object does not match the name on the URL".to_owned(),
        ));
    }
    if differs("uid") {
        let (sent, found) = (object::uid(next), object::uid(current));
        let message = format!(
            "Precondition failed: UID in precondition: {sent}, UID in object meta: {found}"
        );
        let (of, name) = of();
        return Err(ApiError::Conflict { of, name, message });
    }
    if differs("resourceVersion") && object::resource_version(next) != Some("0") {
        let message = "the object has been modified; please apply your changes to the latest \
            version and try again"
            .to_owned();
        let (of, name) = of();
        return Err(ApiError::Conflict { of, name, message });
    }
    Ok(())
}

fn with_status(current: &Value, next: &Value) -> Value {
    let mut object = current.clone();
    copy_field(next, &mut object, "status");
    if let Some(fields) = next["metadata"].get("managedFields") {
        set_meta(&mut object, "managedFields", fields.clone());
    }
    object
}

fn with_spec(kind: &Kind, current: &Value, mut next: Value) -> Value {
    for field in FIXED.into_iter().chain(["name", "namespace"]) {
        set_meta(&mut next, field, current["metadata"][field].clone());
    }
    if next["metadata"].get("managedFields").is_none() {
        set_meta(
            &mut next,
            "managedFields",
            current["metadata"]["managedFields"].clone(),
        );
    }
    if kind.status {
        copy_field(current, &mut next, "status");
    }
    next
}

fn check(kind: &Kind, current: &Value, object: &Value) -> Result<(), ApiError> {
    let mut causes = metadata_validation::check(kind, object);
    causes.extend(builtin_rules::check(kind, object));
    causes.extend(builtin_rules::check_change(kind, current, object));
    causes.extend(check_finalizers(current, object));
    if let Some(schema) = kind.schema() {
        causes.extend(schema.check(object, Some(current)));
    }
    reject(kind, object, causes)
}

/// Rejects new finalizers on a terminating object.
fn check_finalizers(current: &Value, object: &Value) -> Option<Cause> {
    let list = |object: &Value| {
        object["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let before = list(current);
    let added = list(object)
        .into_iter()
        .find(|finalizer| !before.contains(finalizer))?;
    object::is_deleting(current).then(|| {
        let message = format!(
            "Forbidden: no new finalizers can be added if the object is being \
            deleted, found new finalizers []string{{{added}}}"
        );
        Cause::new(CauseReason::Forbidden, "metadata.finalizers", message)
    })
}

fn count_generation(kind: &Kind, current: &Value, object: &mut Value) {
    if has_generation(kind)
        && generation_relevant_fields(kind, current) != generation_relevant_fields(kind, object)
    {
        set_meta(
            object,
            "generation",
            object::generation(current).saturating_add(1),
        );
    }
}

/// The part of an object whose changes increase `metadata.generation`.
fn generation_relevant_fields(kind: &Kind, object: &Value) -> Value {
    let mut rest = object.clone();
    let fields = as_object(&mut rest);
    fields.insert("metadata".to_owned(), json!({}));
    if kind.status {
        fields.remove("status");
    }
    rest
}
