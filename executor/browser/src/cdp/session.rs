//! A session with one target: the browser, a page, a frame of another site, a worker.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{CALL_TIMEOUT, CdpError, Connection};

/// Identifier of a session; the empty one is the root session of the browser.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SessionId(Option<Arc<str>>);

impl SessionId {
    pub(super) fn root() -> Self {
        Self(None)
    }

    pub(super) fn as_option(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl From<&str> for SessionId {
    fn from(text: &str) -> Self {
        Self(Some(text.into()))
    }
}

impl Display for SessionId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or_default())
    }
}

#[derive(Debug, Clone)]
pub struct Session {
    connection: Connection,
    id: SessionId,
}

impl Session {
    pub(super) fn new(connection: Connection, id: SessionId) -> Self {
        Self { connection, id }
    }

    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Sends a command without waiting for its answer.
    pub fn send(&self, method: &str, params: impl Serialize) {
        self.connection.send(&self.id, method, params);
    }

    /// Calls a method and waits up to [`CALL_TIMEOUT`].
    pub async fn call<R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: impl Serialize,
    ) -> Result<R, CdpError> {
        self.call_within(CALL_TIMEOUT, method, params).await
    }

    pub async fn call_within<R: DeserializeOwned>(
        &self,
        limit: Duration,
        method: &'static str,
        params: impl Serialize,
    ) -> Result<R, CdpError> {
        let answer = self.call_raw(limit, method, params).await?;
        serde_json::from_str(answer.get()).map_err(|error| CdpError::Malformed {
            method,
            message: error.to_string(),
        })
    }

    pub async fn call_raw(
        &self,
        limit: Duration,
        method: &'static str,
        params: impl Serialize,
    ) -> Result<Box<RawValue>, CdpError> {
        let calling = self.connection.call(&self.id, method, params);
        match tokio::time::timeout(limit, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(CdpError::Timeout(method)),
        }
    }
}
