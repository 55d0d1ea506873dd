//! The environment Secret of a sandbox that runs the entrypoint of its image. There is no
//! supervisor that could receive the environment, so the Pod refers to a Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use super::{BuildContext, BuildError};
use crate::reconcile::init_message::Environment;

/// Longest key of a Secret, in bytes.
const MAX_SECRET_KEY_BYTES: usize = 253;

/// The Secret that holds `environment`, still owned by the Sandbox.
pub fn secret(
    context: &BuildContext<'_>,
    name: String,
    environment: Environment,
) -> Result<Secret, BuildError> {
    let data: Result<BTreeMap<_, _>, _> = environment
        .into_iter()
        .map(|(name, value)| Ok::<_, BuildError>((checked(name)?, ByteString(value.into_bytes()))))
        .collect();
    Ok(Secret {
        metadata: context.metadata(name),
        immutable: Some(true),
        data: Some(data?),
        ..Secret::default()
    })
}

/// Returns the name if it is valid as a key of a Secret. Dropping the variable would start the
/// command without it.
fn checked(name: String) -> Result<String, BuildError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_key = !name.is_empty() && name.len() <= MAX_SECRET_KEY_BYTES && name.bytes().all(fits);
    if is_key && name != "." && !name.starts_with("..") {
        return Ok(name);
    }
    let shown: String = name.chars().take(64).collect();
    Err(BuildError::at(
        "spec.sealedEnv",
        format!(
            "the variable {shown:?} requires spec.command: without it, names consist of letters, \
             digits, '-', '_' and '.'"
        ),
    ))
}
