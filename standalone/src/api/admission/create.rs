//! Admission of new objects: name, uid and creation time.

use operator::clock::Clock;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use super::{
    Admitted, builtin_rules, field_validation::validate_fields, has_generation,
    metadata_validation, reject,
};
use crate::api::{
    error::ApiError,
    object::{self, as_object, set_meta},
    registry::Kind,
    request::FieldValidation,
    timestamp::stamp,
};

/// Context of a create request.
pub(crate) struct NewObject<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) clock: &'a Clock,
    pub(crate) validation: FieldValidation,
}

/// Fields of `metadata` that only the server writes.
const SERVER_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
];

/// Alphabet of generated names, as in the real server: no vowels, so no words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

pub(crate) fn prepare_create(new: &NewObject<'_>, mut object: Value) -> Result<Admitted, ApiError> {
    let kind = new.kind;
    let warnings = validate_fields(kind, &mut object, new.validation)?;
    if object::resource_version(&object).is_some_and(|version| version != "0") {
        return Err(ApiError::BadRequest(
            "resourceVersion should not be set on objects to be created".to_owned(),
        ));
    }
    identify(new, &mut object)?;
    if kind.status {
        as_object(&mut object).remove("status");
    }
    builtin_rules::complete(kind, &mut object);
    let mut causes = metadata_validation::check(kind, &object);
    causes.extend(builtin_rules::check(kind, &object));
    if let Some(schema) = kind.schema() {
        schema.fill_defaults(&mut object);
        causes.extend(schema.check(&object, None));
    }
    reject(kind, &object, causes)?;
    builtin_rules::admit(kind, &object)?;
    Ok(Admitted { object, warnings })
}

fn identify(new: &NewObject<'_>, object: &mut Value) -> Result<(), ApiError> {
    for field in SERVER_FIELDS {
        set_meta(object, field, Value::Null);
    }
    set_namespace(new.namespace, object)?;
    if object::meta(object, "name").is_none()
        && let Some(prefix) = object::meta(object, "generateName")
    {
        let name = format!(
            "{}{}",
            prefix.chars().take(248).collect::<String>(),
            suffix()?
        );
        set_meta(object, "name", name);
    }
    set_meta(object, "uid", uid()?);
    set_meta(object, "creationTimestamp", stamp(new.clock));
    if has_generation(new.kind) {
        set_meta(object, "generation", 1);
    }
    Ok(())
}

fn set_namespace(namespace: Option<&str>, object: &mut Value) -> Result<(), ApiError> {
    match (namespace, object::meta(object, "namespace")) {
        (Some(requested), Some(sent)) if requested != sent => Err(ApiError::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
                .to_owned(),
        )),
        (requested, _) => {
            set_meta(
                object,
                "namespace",
                requested.map_or(Value::Null, |namespace| json!(namespace)),
            );
            Ok(())
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], ApiError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        ApiError::Internal("cannot read random bytes from the operating system".to_owned())
    })?;
    Ok(bytes)
}

fn suffix() -> Result<String, ApiError> {
    let bytes = random::<5>()?;
    Ok(bytes
        .iter()
        .map(|&byte| char::from(SUFFIX_LETTERS[usize::from(byte) % SUFFIX_LETTERS.len()]))
        .collect())
}

/// Random (version 4) UUID.
fn uid() -> Result<String, ApiError> {
    let value = u128::from_be_bytes(random()?);
    let value = (value & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{value:032x}");
    Ok([
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-"))
}
