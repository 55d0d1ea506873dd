//! Liveness of the server in a sandbox, over its public URL.

use std::time::Duration;

use http::Method;

use crate::backoff::Backoff;
use crate::http_client;
use crate::{Error, Sandbox};

const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for name resolution, certificates and load balancers to agree with the gateway.
const ALIVE_LIMIT: Duration = Duration::from_secs(30);

impl Sandbox {
    /// `GET /alive`: fails unless the server answers now. It neither wakes a sandbox nor counts as
    /// activity.
    pub async fn check_alive(&self) -> Result<(), Error> {
        let request = self
            .request(Method::GET, &["alive"], &[])?
            .timeout(PROBE_TIMEOUT);
        http_client::attempt(request).await?;
        Ok(())
    }

    /// Waits until the server answers.
    pub(crate) async fn wait_alive(&self) -> Result<(), Error> {
        let mut backoff = Backoff::new(ALIVE_LIMIT);
        loop {
            let request = self
                .request(Method::GET, &["alive"], &[])?
                .timeout(PROBE_TIMEOUT);
            match http_client::attempt(request).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.is_temporary() && backoff.wait().await => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }
}
