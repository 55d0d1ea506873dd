//! Readiness probe of the command: its port accepts connections, its path answers 2xx. It retries
//! within milliseconds; probes of the kubelet have a period of at least one second.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crds::contract::control::{MIN_RUN_SECONDS, Probe, SupervisorState};
use http_body_util::Full;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::command_state::CommandState;
use super::loopback;
use crate::own_port;

const INITIAL_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_WARM_INTERVAL: Duration = Duration::from_mins(1);
/// Interval after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Failures in a row after which a program counts as hanging.
const MAX_FAILURES: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("port {0} does not accept connections: {1}")]
    Connect(u16, std::io::Error),
    #[error("no response from {0}: {1}")]
    Exchange(String, loopback::ExchangeError),
    #[error("{0} is not a path")]
    Path(String),
    #[error("{0} answers {1}")]
    Status(String, http::StatusCode),
    #[error("{0} reports that it is not initialized")]
    NotInitialized(String),
    #[error("no response within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Probes until the probe passes, and then reports the command ready. A command without a port is
/// ready once it has run for [`MIN_RUN_SECONDS`].
pub(super) async fn watch(address: IpAddr, probe: Probe, lifecycle: CommandState) {
    let report = |error: String| lifecycle.set(SupervisorState::Starting, Some(error));
    wait_until_passed(address, &probe, report).await;
    lifecycle.set(SupervisorState::Ready, None);
    tracing::debug!("command is ready");
}

/// Probes until the probe passes. Each failure is reported.
pub(super) async fn wait_until_passed(address: IpAddr, probe: &Probe, report: impl Fn(String)) {
    if probe.port.is_none() {
        tokio::time::sleep(Duration::from_secs(MIN_RUN_SECONDS)).await;
    }
    let mut pause = INITIAL_BACKOFF;
    while let Err(error) = attempt(address, probe).await {
        report(error.to_string());
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(MAX_BACKOFF);
    }
}

/// Touches a program every minute, so that its pages stay in memory. Returns the error of the third
/// failure in a row.
pub(super) async fn keep_warm<E, F>(touch: impl Fn() -> F) -> E
where
    F: Future<Output = Result<(), E>>,
{
    let mut failures = 0;
    loop {
        let is_well = failures == 0;
        tokio::time::sleep(if is_well {
            KEEP_WARM_INTERVAL
        } else {
            RETRY_INTERVAL
        })
        .await;
        failures = match touch().await {
            Ok(()) => 0,
            Err(error) if failures + 1 == MAX_FAILURES => return error,
            Err(_) => failures + 1,
        };
    }
}

pub(super) async fn attempt(address: IpAddr, probe: &Probe) -> Result<(), ProbeError> {
    let Some(port) = probe.port else {
        return Ok(());
    };
    let check = async {
        let stream = own_port::connect(SocketAddr::new(address, port)).await;
        let stream = stream.map_err(|error| ProbeError::Connect(port, error))?;
        match &probe.path {
            Some(path) => get(stream, path).await,
            None => Ok(()),
        }
    };
    let checked = tokio::time::timeout(TIMEOUT, check).await;
    checked.unwrap_or(Err(ProbeError::Timeout))
}

async fn get(stream: TcpStream, path: &str) -> Result<(), ProbeError> {
    let request = http::Request::get(path).body(Full::default());
    let request = request.map_err(|_| ProbeError::Path(path.to_owned()))?;
    let (status, body) = loopback::exchange(stream, request)
        .await
        .map_err(|error| ProbeError::Exchange(path.to_owned(), error))?;
    if !status.is_success() {
        return Err(ProbeError::Status(path.to_owned(), status));
    }
    if says_not_initialized(&body) {
        return Err(ProbeError::NotInitialized(path.to_owned()));
    }
    Ok(())
}

/// Detects the body that the Python server may send with status 200 before it can serve.
fn says_not_initialized(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Body {
        status: String,
    }
    serde_json::from_slice::<Body>(body).is_ok_and(|body| body.status == "not initialized")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn program_is_touched_every_minute_until_three_failures_in_a_row() {
        let (began, times) = (Instant::now(), RefCell::default());
        let touch = || {
            let mut times = times.borrow_mut();
            let results: &mut Vec<_> = &mut times;
            results.push(began.elapsed().as_secs());
            let passes = [1, 2, 5].contains(&results.len());
            ready(passes.then_some(()).ok_or(results.len()))
        };
        assert_eq!(keep_warm(touch).await, 8);
        assert_eq!(*times.borrow(), [60, 120, 180, 190, 200, 260, 270, 280]);
    }

    #[test]
    fn probe_recognizes_not_initialized_status() {
        assert!(says_not_initialized(br#"{"status":"not initialized"}"#));
        assert!(!says_not_initialized(br#"{"status":"ok"}"#));
        assert!(!says_not_initialized(b"OK"));
        assert!(!says_not_initialized(b""));
    }
}
