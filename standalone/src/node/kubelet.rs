//! Logs and commands of containers, for the embedded API.

use std::io;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use tokio::task::spawn_blocking;

use super::NodeConfig;
use super::logs::log_stream;
use super::sessions::exec;
use crate::api::{ContainerPath, ExecCommand, Kubelet, LogError, LogQuery, LogStream, Session};

impl Kubelet for NodeConfig {
    fn logs(
        &self,
        container: ContainerPath,
        query: LogQuery,
    ) -> BoxFuture<'static, Result<LogStream, LogError>> {
        let [_, pod, name] = container.clone();
        let missing = if query.previous {
            format!("previous terminated container {name:?} in pod {pod:?} not found")
        } else {
            format!("container {name:?} in pod {pod:?} is waiting to start")
        };
        let state_dir = self.state_dir.clone();
        let read = spawn_blocking(move || log_stream(&state_dir, &container, &query));
        let read = async { read.await.map_err(io::Error::from).flatten() };
        let explain = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => LogError::NotAvailable(missing),
            _ => LogError::Failed(error.to_string()),
        };
        read.map_err(explain).boxed()
    }

    fn exec(
        &self,
        container: ContainerPath,
        command: ExecCommand,
    ) -> BoxFuture<'static, io::Result<Session>> {
        let found = self.containers.find(&container);
        let missing = format!("container not found ({:?})", container[2]);
        let found = found.ok_or_else(|| io::Error::other(missing));
        async { exec(found?, command).await }.boxed()
    }
}
