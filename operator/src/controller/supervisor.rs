//! Calls to the supervisors in sandboxes. Who answers is untrusted code's neighbour: answers are
//! bounded in size and time, and read as nothing but what the contract says.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use crds::contract::control::ReadyReport;
use crds::contract::{CONTROL_PORT, endpoint};
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest answer that is read, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;
/// Longest time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time for a call, beyond the wait it asks for.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a supervisor did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Nobody listens there, or not any more.
    #[error("no connection: {0}")]
    Unreachable(String),
    #[error("no answer in time")]
    Timeout,
    #[error("refused with status {0}")]
    Refused(u16),
    #[error("the answer is malformed")]
    Malformed,
}

/// The supervisors of all sandboxes, by the address of their Pods. Tests put their own here.
pub trait Supervisors: Debug + Send + Sync {
    /// Starts the command: `token` is a signed `Grant::Init`.
    fn init<'a>(&'a self, ip: &'a str, token: String)
    -> BoxFuture<'a, Result<(), SupervisorError>>;

    /// Asks whether the command is ready, waiting for it for at most `wait`: `token` is a signed
    /// `Grant::Ready`.
    fn ready<'a>(
        &'a self,
        ip: &'a str,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>>;

    /// Whether a port of a sandbox without supervisor accepts connections.
    fn accepts<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, bool>;

    /// How long the server on a port has been idle, by its own word: `idle_time` of `/server_info`
    /// (runtime API spec 4.9). `None` if it says nothing of that.
    fn idle<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, Option<Duration>>;
}

/// Supervisors over HTTP.
#[derive(Debug, Clone)]
pub struct HttpSupervisors {
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Default for HttpSupervisors {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(5))
            .pool_max_idle_per_host(1)
            .build(connector);
        Self { client }
    }
}

impl HttpSupervisors {
    async fn call(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
        limit: Duration,
    ) -> Result<Bytes, SupervisorError> {
        let request = request.map_err(|e| SupervisorError::Unreachable(e.to_string()))?;
        let exchange = async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|e| unreachable(&e))?;
            if !answer.status().is_success() {
                return Err(SupervisorError::Refused(answer.status().as_u16()));
            }
            let body = Limited::new(answer.into_body(), LONGEST_ANSWER);
            let read = body
                .collect()
                .await
                .map_err(|_| SupervisorError::Malformed)?;
            Ok(read.to_bytes())
        };
        timeout(limit, exchange)
            .await
            .map_err(|_| SupervisorError::Timeout)?
    }
}

impl Supervisors for HttpSupervisors {
    fn init<'a>(
        &'a self,
        ip: &'a str,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(async move {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("{}{}", base(ip), endpoint::INIT))
                .header(header::CONTENT_TYPE, "text/plain")
                .body(Full::from(token));
            match self.call(request, CALL_TIMEOUT).await {
                // It was initialised before; whether rightly, `ready` will tell.
                Err(SupervisorError::Refused(code)) if code == StatusCode::CONFLICT.as_u16() => {
                    Ok(())
                }
                other => other.map(|_| ()),
            }
        })
    }

    fn ready<'a>(
        &'a self,
        ip: &'a str,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(async move {
            let (base, path, seconds) = (base(ip), endpoint::READY, wait.as_secs());
            let request = Request::builder()
                .uri(format!("{base}{path}?timeout={seconds}"))
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                .body(Full::default());
            let answer = self.call(request, wait + CALL_TIMEOUT).await?;
            serde_json::from_slice(&answer).map_err(|_| SupervisorError::Malformed)
        })
    }

    fn accepts<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let connect = TcpStream::connect((ip, port));
            timeout(CONNECT_TIMEOUT, connect)
                .await
                .is_ok_and(|connected| connected.is_ok())
        })
    }

    fn idle<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(async move {
            let uri = format!("{}/server_info", server(ip, port));
            let request = Request::builder().uri(uri).body(Full::default());
            let answer = self.call(request, CALL_TIMEOUT).await.ok()?;
            idle_time(&answer)
        })
    }
}

/// What is read of `/server_info`.
#[derive(Debug, Deserialize)]
struct ServerInfo {
    idle_time: f64,
}

fn idle_time(answer: &[u8]) -> Option<Duration> {
    let info: ServerInfo = serde_json::from_slice(answer).ok()?;
    Duration::try_from_secs_f64(info.idle_time.max(0.0)).ok()
}

fn base(ip: &str) -> String {
    server(ip, CONTROL_PORT)
}

fn server(ip: &str, port: u16) -> String {
    match ip.parse() {
        Ok(IpAddr::V6(address)) => format!("http://[{address}]:{port}"),
        _ => format!("http://{ip}:{port}"),
    }
}

fn unreachable(error: &hyper_util::client::legacy::Error) -> SupervisorError {
    let source = std::error::Error::source(error);
    SupervisorError::Unreachable(source.map_or_else(|| error.to_string(), ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_read_from_whatever_a_sandbox_answers() {
        let read = |text: &str| idle_time(text.as_bytes());
        let quarter = Duration::from_millis(250);
        assert_eq!(
            read(r#"{"uptime": 9, "idle_time": 0.25, "resources": {}}"#),
            Some(quarter)
        );
        assert_eq!(read(r#"{"idle_time": -3}"#), Some(Duration::ZERO));
        for odd in [
            "",
            "{}",
            "[]",
            r#"{"idle_time": "9"}"#,
            r#"{"idle_time": 1e99}"#,
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
