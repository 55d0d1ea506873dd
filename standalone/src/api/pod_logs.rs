//! Interface for container logs, which the node implements. The API knows no processes.

use std::io;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;

/// Parts of a log as they become available.
pub type LogStream = BoxStream<'static, io::Result<Bytes>>;

/// Reads the output of containers, for `kubectl logs`.
pub trait PodLogs: Send + Sync + 'static {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        query: &'a LogQuery,
    ) -> BoxFuture<'a, Result<LogStream, LogError>>;
}

/// Options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Absent: the default container.
    pub container: Option<String>,
    /// Logs of the previous run of the container.
    pub previous: bool,
    /// Sends further output until the container terminates.
    pub follow: bool,
    pub tail: Option<usize>,
    pub limit_bytes: Option<usize>,
    pub since: Option<Timestamp>,
    pub timestamps: bool,
}

/// Error with a message for the user.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// The container has not started, or there is none of this name.
    #[error("{0}")]
    NotAvailable(String),
    #[error("{0}")]
    Failed(String),
}
