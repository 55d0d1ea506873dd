//! Interface for what a kubelet does for the API server: logs of containers, and commands in them.
//! The node implements it; the API knows no processes.

use std::io;

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use serde_json::json;
use tokio::io::AsyncWrite;

/// Parts of a log as they become available.
pub type LogStream = BoxStream<'static, io::Result<Bytes>>;

/// Namespace, Pod and name of a container.
pub type ContainerPath = [String; 3];

/// Serves containers, for `kubectl logs` and `kubectl exec`.
pub trait Kubelet: Send + Sync + 'static {
    fn logs(
        &self,
        container: ContainerPath,
        query: LogQuery,
    ) -> BoxFuture<'static, Result<LogStream, LogError>>;

    fn exec(
        &self,
        container: ContainerPath,
        command: ExecCommand,
    ) -> BoxFuture<'static, io::Result<Session>>;
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
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

/// Command, and the streams that the client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecCommand {
    pub command: Vec<String>,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

pub type SessionInput = Box<dyn AsyncWrite + Send + Unpin>;

/// Sets columns and rows of a terminal.
pub type Resize = Box<dyn Fn(u16, u16) + Send>;

/// Session with a Pod. Dropping `output` ends it.
#[expect(missing_debug_implementations, reason = "streams")]
pub struct Session {
    /// Writers of what the client sends, by channel.
    pub inputs: Vec<Option<SessionInput>>,
    pub resize: Option<Resize>,
    /// Output, with channels.
    pub output: BoxStream<'static, (u8, Bytes)>,
}

/// Last message of a command: its status, on channel 3.
pub(crate) fn exit_status(code: i32) -> (u8, Bytes) {
    let mut status = json!({"metadata": {}, "status": "Success"});
    if code != 0 {
        status = json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        });
    }
    (3, status.to_string().into())
}
