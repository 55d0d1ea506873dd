//! Bounds on calls to the API server: a client of ours waits 15 seconds at most, so a call that
//! fails for a moment is tried again, and one that hangs is given up.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::SandboxError;

const TRIES: u32 = 3;
/// No further try begins after this long, and no call goes on for longer. `/start` may need two of
/// them and has to answer within ten seconds (runtime API spec 0.4 rule 3).
const LIMIT: Duration = Duration::from_secs(4);
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Runs a call, and again while it fails in a way that may pass.
pub(in crate::gateway) async fn retrying<T, F>(call: impl Fn() -> F) -> Result<T, SandboxError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let deadline = Instant::now() + LIMIT;
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        let left = deadline.saturating_duration_since(Instant::now());
        match within(left, call()).await {
            Err(error) if error.is_transient() && Instant::now() + pause < deadline => {
                tracing::debug!(category = error.category(), "tried again");
            }
            done => return done,
        }
        sleep(pause).await;
        pause *= 4;
    }
    within(deadline.saturating_duration_since(Instant::now()), call()).await
}

/// Runs a call that may take no longer than `limit`.
pub(in crate::gateway) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, SandboxError> {
    match timeout(limit, call).await {
        Ok(done) => done.map_err(SandboxError::from),
        Err(_) => Err(SandboxError::Timeout),
    }
}
