//! Calls in progress that `notifications/cancelled` can end. The id of a request is unique in its
//! session only, so a call without the id of a session cannot be cancelled by a notification.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;
use ring::rand::{self, SystemRandom};
use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

/// Header with the id of a session, which `initialize` returns and the client sends.
pub(super) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Longest id of a session. Those of the gateway have 32 characters.
const MAX_SESSION_BYTES: usize = 64;

/// Tokens of the calls in progress on this replica; cheap to clone. Each call holds a permit of its
/// tenant, which bounds their number.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCalls(Arc<Mutex<HashMap<CallKey, CancellationToken>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) tenant: String,
    pub(super) session: String,
    pub(super) request: RequestId,
}

/// Entry of a call, until it is dropped.
#[derive(Debug)]
pub(super) struct RunningCall {
    calls: RunningCalls,
    key: CallKey,
}

impl RunningCalls {
    /// `None` if the session has a call with this id in progress.
    pub(super) fn register(&self, key: CallKey, token: CancellationToken) -> Option<RunningCall> {
        let mut calls = self.0.lock();
        if calls.contains_key(&key) {
            return None;
        }
        calls.insert(key.clone(), token);
        let calls = self.clone();
        Some(RunningCall { calls, key })
    }

    pub(super) fn cancel(&self, key: &CallKey) {
        if let Some(token) = self.0.lock().get(key) {
            token.cancel();
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.calls.0.lock().remove(&self.key);
    }
}

/// Reads the id of the session of a request.
pub(super) fn session(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(SESSION)?.to_str().ok()?;
    (!id.is_empty() && id.len() <= MAX_SESSION_BYTES).then(|| id.to_owned())
}

/// Returns a new id of a session; `None` without randomness.
pub(super) fn new_session() -> Option<String> {
    let bytes = rand::generate::<[u8; 16]>(&SystemRandom::new()).ok()?;
    Some(data_encoding::HEXLOWER.encode(&bytes.expose()))
}
