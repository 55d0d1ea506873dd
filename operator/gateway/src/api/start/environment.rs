//! Reads the client's environment: every value as text, without the names that the server owns
//! (`docs/specs/runtime-api.md`, section 4.8 and section 7, rules 24 and 36).

use std::collections::BTreeMap;

use crds::contract::variable::{OH_SESSION_API_KEYS_0, SESSION_API_KEY};
use serde_json::{Map, Value};

use crate::api::ApiError;
use crate::exec_limits::check_variable;

/// Variables that only the controller sets.
const SERVER_OWNED: [&str; 5] = [
    SESSION_API_KEY,
    OH_SESSION_API_KEYS_0,
    "RUNTIME_ID",
    "RUNTIME_URL",
    "OH_WEB_URL",
];

/// Reads an environment. Nulls and server-owned names are left out.
pub(in crate::api) fn read(raw: Map<String, Value>) -> Result<BTreeMap<String, String>, ApiError> {
    raw.into_iter()
        .filter(|(name, _)| !SERVER_OWNED.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name, text(value)?)))
        .map(|(name, value)| {
            check_variable(&name, &value)?;
            Ok((name, value))
        })
        .collect()
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}
