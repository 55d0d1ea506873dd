//! Exceptions of the Python clients, by which tests name the failure that they expect.

use serde_json::Value;

/// An exception of one of the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientException {
    /// `KeyError`: a field that is indexed is missing.
    Key(String),
    /// `AttributeError` or `TypeError`: a field is of another type than the client takes for granted.
    Type(String),
    /// A failed `assert`.
    Assertion(String),
    /// `ValueError`, or a strict model that does not fit.
    Value(String),
    /// `UnicodeDecodeError` or `JSONDecodeError`.
    Decode,
    /// An answer that is not 2xx.
    Http {
        status: u16,
        detail: Option<String>,
    },
    /// `tenacity.RetryError`, which no caller catches.
    Retry,
    Timeout,
    Connection,
    /// `AgentRuntimeDisconnectedError`.
    Disconnected,
    /// `AgentRuntimeUnavailableError`.
    Unavailable(String),
    /// `AgentRuntimeNotFoundError`.
    NotFound,
    /// `AgentRuntimeNotReadyError`.
    NotReady(String),
    /// The client waits for a lock that it holds itself.
    Hangs,
}

/// `object[name]`.
pub fn index<'a>(object: &'a Value, name: &str) -> Result<&'a Value, ClientException> {
    let object = object
        .as_object()
        .ok_or_else(|| ClientException::Type(format!("{object} has no fields")))?;
    object
        .get(name)
        .ok_or_else(|| ClientException::Key(name.to_owned()))
}

/// `object[name]`, used as a string.
pub fn text(object: &Value, name: &str) -> Result<String, ClientException> {
    let value = index(object, name)?;
    let text = value.as_str().map(ToOwned::to_owned);
    text.ok_or_else(|| ClientException::Type(format!("{name} is {value}")))
}

/// `object.get('restart_count', 0) > 0`: a null raises.
pub fn restarts(object: &Value) -> Result<u64, ClientException> {
    match object.get("restart_count") {
        None => Ok(0),
        Some(count) => count
            .as_u64()
            .ok_or_else(|| ClientException::Type(format!("restart_count is {count}"))),
    }
}
