//! The wait loop of V0 (`docs/specs/runtime-api.md`, section 3.2, step 5): what it takes for "not yet", and what is fatal.

use std::time::Duration;

use http::Method;
use tokio::time::{Instant, sleep};

use super::V0;
use crate::clients::exception::{restarts, text};
use crate::clients::{ClientException, POLL};

const TITLE_CASE: [&str; 7] = [
    "Ready",
    "Running",
    "Pending",
    "Not Found",
    "CrashLoopBackOff",
    "Failed",
    "Unknown",
];

impl V0 {
    /// Polls until the sandbox is alive. Only "not ready" is tried again.
    pub(super) async fn wait_until_alive(&mut self) -> Result<(), ClientException> {
        let end = Instant::now() + self.config.init_timeout;
        loop {
            match self.check_once().await {
                Err(ClientException::NotReady(_)) if Instant::now() < end => sleep(POLL).await,
                done => return done,
            }
        }
    }

    async fn check_once(&mut self) -> Result<(), ClientException> {
        let path = format!("runtime/{}", self.id());
        let runtime = self.api(Method::GET, &path, None, 200).await?.json()?;
        Self::checked_id(&runtime, self.id())?;
        let missing = |_| ClientException::Assertion("no pod_status".into());
        let pod = text(&runtime, "pod_status").map_err(missing)?;
        restarts(&runtime)?;
        // The oldest releases compare in title case.
        if !TITLE_CASE.contains(&pod.as_str()) {
            let unknown = format!("unknown pod_status {pod}");
            return Err(ClientException::Assertion(unknown));
        }
        match pod.to_lowercase().as_str() {
            "ready" => self.check_alive().await,
            "failed" | "unknown" | "crashloopbackoff" => Err(ClientException::Unavailable(pod)),
            _ => Err(ClientException::NotReady(pod)),
        }
    }

    async fn check_alive(&mut self) -> Result<(), ClientException> {
        let limit = Duration::from_secs(5);
        match self.sandbox(Method::GET, "/alive", None, limit).await {
            Ok(_) => Ok(()),
            Err(ClientException::Http { .. } | ClientException::Timeout) => {
                Err(ClientException::NotReady("not alive".into()))
            }
            Err(fatal) => Err(fatal),
        }
    }
}
