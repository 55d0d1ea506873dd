//! Retries and timeouts of calls to the API server. Every call of the API is answered within ten
//! seconds, so a transient failure is retried and a call that hangs is ended.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::error::SandboxError;

const MAX_ATTEMPTS: u32 = 3;
/// Time for all attempts of a call. `/start` may need two calls (`docs/specs/runtime-api.md`, section 0.4, rule 3).
const CALL_TIMEOUT: Duration = Duration::from_secs(4);
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);

/// Runs a call and retries transient failures.
pub(crate) async fn retrying<T, F>(call: impl Fn() -> F) -> Result<T, SandboxError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + CALL_TIMEOUT;
    let mut backoff = INITIAL_BACKOFF;
    for _ in 1..MAX_ATTEMPTS {
        let left = deadline.saturating_duration_since(Instant::now());
        match within(left, call()).await {
            Err(error) if error.is_transient() && Instant::now() + backoff < deadline => {
                tracing::debug!(category = error.category(), "call failed; retrying");
            }
            result => return result,
        }
        sleep(backoff).await;
        backoff *= 4;
    }
    within(deadline.saturating_duration_since(Instant::now()), call()).await
}

pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, SandboxError> {
    match timeout(limit, call).await {
        Ok(result) => result.map_err(SandboxError::from),
        Err(_) => Err(SandboxError::Timeout),
    }
}
