//! Way to close the connection of a response. The HTTP server does not poll the body of a client that
//! reads nothing, so the body cannot end by itself.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Extension of a response. The listener links it to the connection, for HTTP/1 only: connections of
/// HTTP/2 have other requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionAbort(Arc<OnceLock<CancellationToken>>);

impl ConnectionAbort {
    /// Links the connection that closes when `token` is cancelled.
    pub(crate) fn link(&self, token: &CancellationToken) {
        let _ = self.0.set(token.clone());
    }

    /// Closes the connection. False if that has happened before, or none is linked.
    pub(crate) fn abort(&self) -> bool {
        let open = self.0.get().filter(|token| !token.is_cancelled());
        open.inspect(|token| token.cancel()).is_some()
    }
}
