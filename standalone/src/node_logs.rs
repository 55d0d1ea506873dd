//! Container logs for the API, read from the node's files.

use std::io;
use std::path::PathBuf;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::api::{LogError, LogQuery, LogStream, PodLogs};
use crate::node::{self, LogOptions};

/// Container that is read if the request names none.
const DEFAULT_CONTAINER: &str = crds::names::CONTAINER;

/// Logs below a node's state directory.
#[derive(Debug)]
pub(crate) struct NodeLogs {
    state_dir: PathBuf,
}

impl NodeLogs {
    pub(crate) fn new(state_dir: PathBuf) -> Self {
        Self { state_dir }
    }
}

impl PodLogs for NodeLogs {
    fn read<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        query: &'a LogQuery,
    ) -> BoxFuture<'a, Result<LogStream, LogError>> {
        let query = query.clone();
        let (state_dir, namespace, pod) =
            (self.state_dir.clone(), namespace.to_owned(), pod.to_owned());
        let read = tokio::task::spawn_blocking(move || {
            let container = query.container.as_deref().unwrap_or(DEFAULT_CONTAINER);
            let options = LogOptions {
                previous: query.previous,
                follow: query.follow,
                tail_lines: query.tail,
                limit_bytes: query.limit_bytes,
                since: query.since,
                timestamps: query.timestamps,
            };
            node::log_stream(&state_dir, &namespace, &pod, container, &options)
        });
        async { read.await.map_err(io::Error::from)? }
            .map(|read: io::Result<LogStream>| read.map_err(|error| explain(&error)))
            .boxed()
    }
}

fn explain(error: &io::Error) -> LogError {
    match error.kind() {
        io::ErrorKind::NotFound => LogError::NotAvailable("the container has not started".into()),
        _ => LogError::Failed(error.to_string()),
    }
}
