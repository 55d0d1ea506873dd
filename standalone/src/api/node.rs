//! What the API asks of the node. The API knows no processes; whoever runs Pods lends it a way to their output.

use bytes::Bytes;
use futures::future::BoxFuture;

/// Reads the output of containers, for `kubectl logs`.
pub trait PodLogs: Send + Sync + 'static {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        query: &'a LogQuery,
    ) -> BoxFuture<'a, Result<Bytes, LogError>>;
}

/// Which part of the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Absent: the only, or first, container.
    pub container: Option<String>,
    /// The run before the last restart.
    pub previous: bool,
    pub tail: Option<usize>,
    pub limit_bytes: Option<usize>,
    pub since_seconds: Option<u64>,
    pub timestamps: bool,
}

/// Why there is no output; the message is shown to the user.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The container did not start yet, or there is none of this name.
    #[error("{0}")]
    NotAvailable(String),
    #[error("{0}")]
    Failed(String),
}
