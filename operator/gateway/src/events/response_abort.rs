//! Way to end a response from outside. The HTTP server does not poll the body of a client that
//! reads nothing, so the body cannot end by itself.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Extension of a response. The listener links it to the connection of HTTP/1, or to the stream of
/// HTTP/2, whose connection has other requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResponseAbort(Arc<OnceLock<CancellationToken>>);

impl ResponseAbort {
    /// Links the connection or stream that ends when `token` is cancelled.
    pub(crate) fn link(&self, token: &CancellationToken) {
        let _ = self.0.set(token.clone());
    }

    /// Ends the connection or stream. False if that has happened before, or none is linked.
    pub(crate) fn abort(&self) -> bool {
        let open = self.0.get().filter(|token| !token.is_cancelled());
        open.inspect(|token| token.cancel()).is_some()
    }
}
