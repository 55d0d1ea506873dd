//! Output of sandboxes for clients (`docs/gateway.md`, section "Logs"): the log of the container of a
//! Pod, which the API server reads from its node. A task reads it line by line; a bounded queue
//! leads to the client.

mod cursor;
mod follower;
mod line;
mod pod_log;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::names::CONTAINER;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use shared::index::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::events::{KeyCheck, ResponseAbort};
use crate::keyed_limit::{KeyedLimiter, KeyedPermit};
use crate::sandboxes::Sandboxes;
use follower::Follower;

pub(crate) use cursor::Cursor;
pub(crate) use stream::LogStream;

/// Logs that are read at once on one replica, and those of one tenant.
const MAX_LOGS: usize = 256;
pub(crate) const MAX_LOGS_PER_TENANT: usize = 16;
/// Lines before the present end that a client may ask for.
pub(crate) const MAX_TAIL: u32 = 5000;
/// Events on their way to a client.
const MAX_QUEUED_EVENTS: usize = 16;

/// Logs of the sandboxes of a gateway.
#[derive(Debug)]
pub(crate) struct Logs {
    sandboxes: Sandboxes,
    pods: Api<Pod>,
    tenants: KeyedLimiter<String>,
    all: Arc<Semaphore>,
    /// Cancelled when the replica drains.
    stopping: CancellationToken,
}

/// Part of a log that a client asks for.
#[derive(Debug, Clone)]
pub(crate) struct LogRequest {
    /// Lines before the present end, at most [`MAX_TAIL`]; without effect after a cursor.
    pub(crate) tail: u32,
    /// Sends further lines as they are written.
    pub(crate) follow: bool,
    /// Log of the run before the last restart of the container.
    pub(crate) previous: bool,
    /// Cursor of an earlier stream.
    pub(crate) after: Option<Cursor>,
}

/// The limit of logs that are read at once is reached.
#[derive(Debug, thiserror::Error)]
#[error("too many logs are read at once (at most {MAX_LOGS_PER_TENANT} per API key): close one")]
pub(crate) struct TooManyLogs;

/// Permits of one log, until they are dropped.
type LogPermits = (OwnedSemaphorePermit, KeyedPermit<String>);

impl Logs {
    pub(crate) fn new(client: &kube::Client, sandboxes: Sandboxes) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), &sandboxes.config.namespace),
            sandboxes,
            tenants: KeyedLimiter::default(),
            all: Arc::new(Semaphore::new(MAX_LOGS)),
            stopping: CancellationToken::new(),
        }
    }

    /// Ends all streams. Their clients continue on another replica.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Opens the log of a sandbox of the tenant of `key`.
    pub(crate) fn open(
        self: &Arc<Self>,
        entry: &Entry,
        request: LogRequest,
        key: KeyCheck,
    ) -> Result<LogStream, TooManyLogs> {
        let permits = self.permits(key.tenant())?;
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let connection = ResponseAbort::default();
        let follower = Follower::new(self.clone(), entry, request, sender, connection.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(follower.run()));
        let stopping = self.stopping.clone();
        Ok(LogStream::new(
            receiver,
            key,
            stopping,
            connection,
            (task, permits),
        ))
    }

    fn permits(&self, tenant: &str) -> Result<LogPermits, TooManyLogs> {
        let all = self.all.clone().try_acquire_owned();
        let own = self
            .tenants
            .acquire(&tenant.to_owned(), MAX_LOGS_PER_TENANT);
        all.ok().zip(own).ok_or(TooManyLogs)
    }
}

/// Parameters that all reads share.
fn log_params() -> kube::api::LogParams {
    kube::api::LogParams {
        container: Some(CONTAINER.to_owned()),
        timestamps: true,
        ..kube::api::LogParams::default()
    }
}
