//! Readiness of the server of a plugin: it accepts a connection, or answers a request.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use http::{Request, header};
use tokio::time::{Instant, sleep, timeout_at};

use crate::serve::local_http::{self, LocalHttpError};
use crate::serve::manifest::ReadinessCheck;

const INITIAL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Waits until the server is ready. The error says what was seen last.
pub(super) async fn wait(
    address: Option<SocketAddr>,
    check: Option<&ReadinessCheck>,
) -> Result<(), String> {
    let Some((address, check)) = address.zip(check) else {
        return Ok(());
    };
    let until = Instant::now() + check.limit;
    let mut interval = INITIAL_INTERVAL;
    let mut last = "no response".to_owned();
    loop {
        match timeout_at(until, probe(address, check.path.as_deref())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(problem)) => last = problem,
            Err(_) => {
                let seconds = check.limit.as_secs();
                return Err(format!("was not ready within {seconds} s: {last}"));
            }
        }
        sleep(interval).await;
        interval = (interval * 2).min(MAX_INTERVAL);
    }
}

async fn probe(address: SocketAddr, path: Option<&str>) -> Result<(), String> {
    let failed = |error: LocalHttpError| error.to_string();
    let Some(path) = path else {
        return local_http::connect(address).await.map(drop).map_err(failed);
    };
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .body(Body::empty());
    let request = request.map_err(|error| error.to_string())?;
    let response = local_http::send(address, request).await.map_err(failed)?;
    let status = response.status();
    if status.as_u16() < 400 {
        Ok(())
    } else {
        Err(format!("GET {path} is answered with {status}"))
    }
}
