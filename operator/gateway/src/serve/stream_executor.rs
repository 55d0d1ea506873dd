//! Tasks of HTTP/2 streams, one for each. A stream is reset when its task is dropped, also if its
//! client reads nothing.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

use crate::events::ResponseAbort;

tokio::task_local! {
    /// Ends the task of the current stream.
    static STREAM: CancellationToken;
}

/// Runs the tasks of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamExecutor;

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let token = CancellationToken::new();
        let future = STREAM.scope(token.clone(), future);
        tokio::spawn(token.run_until_cancelled_owned(future));
    }
}

/// Lets the stream of the current task be reset from outside.
pub(super) fn link(abort: &ResponseAbort) {
    let _ = STREAM.try_with(|token| abort.link(token));
}
