//! What the Python clients raise. A test that expects a kind of failure names it by this.

use serde_json::Value;

/// An exception of one of the clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raised {
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
    /// `tenacity.RetryError`, which nobody catches.
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
pub fn index<'a>(object: &'a Value, name: &str) -> Result<&'a Value, Raised> {
    let object = object
        .as_object()
        .ok_or_else(|| Raised::Type(format!("{object} has no fields")))?;
    object.get(name).ok_or_else(|| Raised::Key(name.to_owned()))
}

/// `object[name]`, used as a string.
pub fn text(object: &Value, name: &str) -> Result<String, Raised> {
    let value = index(object, name)?;
    let text = value.as_str().map(ToOwned::to_owned);
    text.ok_or_else(|| Raised::Type(format!("{name} is {value}")))
}

/// `object.get('restart_count', 0) > 0`: a null raises.
pub fn restarts(object: &Value) -> Result<u64, Raised> {
    match object.get("restart_count") {
        None => Ok(0),
        Some(count) => count
            .as_u64()
            .ok_or_else(|| Raised::Type(format!("restart_count is {count}"))),
    }
}
