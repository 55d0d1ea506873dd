//! Concurrent work on several tool servers.

use std::future::Future;

use tokio_util::task::AbortOnDropHandle;

/// Runs futures concurrently and returns their results in order.
pub(super) async fn join_all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    works: impl Iterator<Item = F>,
) -> Vec<T> {
    let works: Vec<_> = works
        .map(|work| AbortOnDropHandle::new(tokio::spawn(work)))
        .collect();
    let mut results = Vec::new();
    for work in works {
        results.extend(work.await);
    }
    results
}
