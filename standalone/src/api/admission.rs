//! Admission of objects: identity, defaults, validation, and the rules about immutable parts. Pure
//! functions of the old object, the new object and the time.

mod builtin_rules;
mod field_validation;
mod metadata_validation;

use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;

use self::field_validation::validate_fields;
use super::{
    error::{ApiError, Cause, CauseReason},
    object::{self, as_object, copy_field, items, set_meta},
    registry::Kind,
    request::{FieldValidation, Subresource},
};

/// Object ready to be stored, with the warnings for the client.
pub(crate) type Admitted = (Value, Vec<String>);

/// Fields of `metadata` that only the server writes.
const SERVER_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "selfLink",
];

/// Alphabet of generated names, as in the real server: no vowels, so no words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the object to store.
pub(crate) fn prepare_create(
    kind: &Kind,
    namespace: Option<&str>,
    now: Timestamp,
    validation: FieldValidation,
    mut object: Value,
) -> Result<Admitted, ApiError> {
    let warnings = validate_fields(kind, &mut object, validation)?;
    if object::resource_version(&object).is_some_and(|version| version != "0") {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    for field in SERVER_FIELDS {
        set_meta(&mut object, field, Value::Null);
    }
    if let (Some(requested), Some(sent)) = (namespace, object::meta(&object, "namespace"))
        && requested != sent
    {
        let message = "the namespace of the provided object does not match the namespace sent on \
            the request";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    set_meta(&mut object, "namespace", namespace);
    if object::name(&object).is_empty()
        && let Some(prefix) = object::meta(&object, "generateName")
    {
        let prefix: String = prefix.chars().take(248).collect();
        let letter = |byte| char::from(SUFFIX_LETTERS[usize::from(byte) % SUFFIX_LETTERS.len()]);
        let suffix: String = random::<5>()?.into_iter().map(letter).collect();
        set_meta(&mut object, "name", prefix + &suffix);
    }
    let uid = uuid::Builder::from_random_bytes(random()?).into_uuid();
    set_meta(&mut object, "uid", uid.to_string());
    set_meta(&mut object, "creationTimestamp", object::seconds(now));
    if has_generation(kind) {
        set_meta(&mut object, "generation", 1);
    }
    if kind.status {
        as_object(&mut object).remove("status");
    }
    complete(kind, &mut object);
    check(kind, None, &object)?;
    builtin_rules::admit(kind, &object)?;
    Ok((object, warnings))
}

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
        Some(Subresource::Resize) => with_resources(current, &next),
        _ => with_spec(kind, current, next),
    };
    complete(kind, &mut object);
    if object != *current {
        // A resize changes nothing else, and what it changes is immutable otherwise.
        let is_resize = subresource == Some(Subresource::Resize);
        let before = if is_resize { &object } else { current };
        check(kind, Some(before), &object)?;
        if has_generation(kind) && counted_fields(kind, current) != counted_fields(kind, &object) {
            let generation = object::generation(current).saturating_add(1);
            set_meta(&mut object, "generation", generation);
        }
    }
    Ok((object, warnings))
}

fn has_generation(kind: &Kind) -> bool {
    kind.schema().is_some() || kind.is_pod() || kind.is("networking.k8s.io", "networkpolicies")
}

/// The part of an object whose changes increase `metadata.generation`.
fn counted_fields(kind: &Kind, object: &Value) -> Value {
    let mut rest = object.clone();
    let fields = as_object(&mut rest);
    fields.remove("metadata");
    if kind.status {
        fields.remove("status");
    }
    rest
}

fn random<const N: usize>() -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    let failed = "cannot read random bytes from the operating system";
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| ApiError::Internal(failed.to_owned()))?;
    Ok(bytes)
}

/// Fills in defaults.
fn complete(kind: &Kind, object: &mut Value) {
    builtin_rules::complete(kind, object);
    if let Some(schema) = kind.schema() {
        schema.fill_defaults(object);
    }
}

fn check(kind: &Kind, current: Option<&Value>, object: &Value) -> Result<(), ApiError> {
    let mut causes = metadata_validation::check(kind, object);
    causes.extend(builtin_rules::check(kind, object));
    if let Some(current) = current {
        causes.extend(builtin_rules::check_change(kind, current, object));
        causes.extend(check_finalizers(current, object));
    }
    if let Some(schema) = kind.schema() {
        causes.extend(schema.check(object, current));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        kind: kind.kind_group(),
        name: object::name(object).to_owned(),
        causes,
    })
}

fn check_preconditions(kind: &Kind, current: &Value, next: &Value) -> Result<(), ApiError> {
    let differs = |field| {
        object::meta(next, field).is_some_and(|sent| Some(sent) != object::meta(current, field))
    };
    if differs("name") || differs("namespace") {
        let message = "the name of the object does not match the name on the URL";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let name = object::name(current);
    if differs("uid") {
        let (sent, found) = (object::uid(next), object::uid(current));
        return Err(kind.failed_precondition(name, "UID", sent, found));
    }
    if differs("resourceVersion") && object::resource_version(next) != Some("0") {
        let message = "the object has been modified; please apply your changes to the latest \
            version and try again";
        return Err(kind.conflict(name, message));
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
    let metadata = &current["metadata"];
    for field in SERVER_FIELDS.iter().chain(&["name", "namespace"]) {
        set_meta(&mut next, field, metadata[field].clone());
    }
    if next["metadata"].get("managedFields").is_none() {
        set_meta(
            &mut next,
            "managedFields",
            metadata["managedFields"].clone(),
        );
    }
    if kind.status {
        copy_field(current, &mut next, "status");
    }
    next
}

/// Takes the resources of the containers from `next`.
fn with_resources(current: &Value, next: &Value) -> Value {
    let mut object = current.clone();
    let containers = object["spec"]["containers"].as_array_mut();
    for container in containers.into_iter().flatten() {
        let is_same = |other: &&Value| other["name"] == container["name"];
        let other = items(&next["spec"]["containers"]).iter().find(is_same);
        if let Some(resources) = other.and_then(|other| other.get("resources")) {
            container["resources"] = resources.clone();
        }
    }
    object
}

/// Rejects new finalizers on a terminating object.
fn check_finalizers(current: &Value, object: &Value) -> Option<Cause> {
    let before = items(&current["metadata"]["finalizers"]);
    let mut finalizers = items(&object["metadata"]["finalizers"]).iter();
    let added = finalizers.find(|finalizer| !before.contains(finalizer))?;
    object::is_deleting(current).then(|| {
        let message = format!(
            "Forbidden: no new finalizers can be added if the object is being \
            deleted, found new finalizers []string{{{added}}}"
        );
        Cause::new(
            CauseReason::FieldValueForbidden,
            "metadata.finalizers",
            message,
        )
    })
}
