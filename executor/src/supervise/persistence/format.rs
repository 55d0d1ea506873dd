//! State of a format that this supervisor does not know: a newer one has left it.

use serde::Deserialize;

use super::error::StateError;

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Version of a description in JSON. Nothing else of it is read: the rest may have changed.
pub(super) fn version(description: &[u8]) -> Option<u32> {
    let versioned: Versioned = serde_json::from_slice(description).ok()?;
    Some(versioned.version)
}

/// Reason why changed files of a newer format are set aside.
pub(super) fn newer(version: u32) -> String {
    format!(
        "{}: it is set aside for a newer one, and files outside of the workspace are those of the \
         image",
        StateError::Version(version)
    )
}
