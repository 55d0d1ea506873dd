//! Envelopes of commands, answers and events. Payloads stay text until their reader is known.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Command<'a, P> {
    pub(super) id: u64,
    pub(super) method: &'a str,
    pub(super) params: P,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
}

/// An answer has an id, an event a method.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Incoming<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<ProtocolError>,
    #[serde(borrow)]
    pub(super) session_id: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ProtocolError {
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Option<String>,
}
