//! The environment of a sandbox that runs its image's own entrypoint: no supervisor could receive it
//! there, so a Secret carries it to the container, and the Pod only names the Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::{Blueprint, BuildError, metadata};
use crate::controller::init::Environment;
use crds::names;

/// Longest key of a Secret, in bytes.
const LONGEST_KEY: usize = 253;

/// The Secret that holds `environment`.
pub fn secret(blueprint: &Blueprint<'_>, environment: Environment) -> Result<Secret, BuildError> {
    let entry = blueprint.entry;
    let data: Result<BTreeMap<_, _>, _> = environment
        .into_iter()
        .map(|(name, value)| Ok((checked(name)?, ByteString(value.into_bytes()))))
        .collect();
    Ok(Secret {
        metadata: metadata(entry, names::environment_secret(&entry.key.name)),
        immutable: Some(true),
        data: Some(data?),
        ..Secret::default()
    })
}

/// Not every name of a variable can be a key. Leaving it out would start the command without it.
fn checked(name: String) -> Result<String, BuildError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_key = !name.is_empty() && name.len() <= LONGEST_KEY && name.bytes().all(fits);
    if is_key && name != "." && !name.starts_with("..") {
        return Ok(name);
    }
    let shown: String = name.chars().take(64).collect();
    Err(BuildError::at(
        "spec.sealedEnv",
        format!(
            "the variable {shown:?} needs a spec.command: an image's own entrypoint can only be \
             given names of letters, digits, '-', '_' and '.'"
        ),
    ))
}
