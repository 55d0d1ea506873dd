//! HTTP client of supervisors. Responses come from sandboxes and are untrusted, so their size and
//! time are bounded.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use crds::contract::control::{ReadyReport, SupervisorState};
use crds::contract::identity::{IdentityKey, PROOF_HEADER};
use crds::contract::persistence::{SaveReport, SnapshotReport};
use crds::contract::{CONTROL_PORT, endpoint};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a call, in addition to the wait that it requests.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Failure of a call to a supervisor.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The address does not accept connections.
    #[error("no connection: {0}")]
    Unreachable(String),
    #[error("no response in time")]
    Timeout,
    #[error("rejected with status {0}")]
    Refused(u16),
    #[error("malformed response")]
    Malformed,
    /// Another Pod may have the address.
    #[error("no proof that the address belongs to the sandbox")]
    Unproven,
    /// The node has not reported the image of the container, which decides on the kept state.
    #[error("the image of the container is not known yet")]
    UnknownImage,
    /// It was initialized for another Sandbox.
    #[error("the supervisor belongs to another sandbox")]
    OtherOwner,
}

/// Supervisor of one Pod.
#[derive(Debug, Clone)]
pub struct SupervisorAddress {
    pub ip: String,
    /// Key that ready reports must be proven with. `None` for Pods of earlier versions.
    pub identity: Option<IdentityKey>,
}

/// Calls to supervisors by the address of their Pods. Tests use fakes.
pub trait Supervisors: Debug + Send + Sync {
    /// Starts the command: `token` is a signed `Grant::Init` or `Grant::SealedInit`.
    fn init<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>>;

    /// Reads the ready report, with a long poll of at most `wait`: `token` is a signed
    /// `Grant::Ready`.
    fn ready<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>>;

    /// Stops the command and has its state kept, with a long poll of at most `wait`: `token` is a
    /// signed `Grant::Save`.
    fn save<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<SaveReport, SupervisorError>>;

    /// Has the state of the command copied, which goes on, with a long poll of at most `wait`: `token`
    /// is a signed `Grant::Snapshot`.
    fn snapshot<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<SnapshotReport, SupervisorError>>;

    /// Returns whether a port of a sandbox accepts connections.
    fn accepts_connections<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, bool>;

    /// Idle time that the server on a port reports: `idle_time` of `/server_info`
    /// (`docs/specs/runtime-api.md`, section 4.9). `None` if it reports none.
    fn server_idle_time<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, Option<Duration>>;
}

/// Calls over HTTP.
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
    /// Long poll whose response proves that it comes from the sandbox.
    async fn post<T: DeserializeOwned>(
        &self,
        at: &SupervisorAddress,
        path: &str,
        token: String,
        wait: Duration,
    ) -> Result<T, SupervisorError> {
        let (base, seconds) = (base(&at.ip), wait.as_secs());
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{base}{path}?timeout={seconds}"))
            .header(header::CONTENT_TYPE, "text/plain")
            .body(Full::from(token.clone()));
        let (headers, body) = self.call(request, wait + CALL_TIMEOUT).await?;
        at.check_proof(&headers, &token, &body)?;
        serde_json::from_slice(&body).map_err(|_| SupervisorError::Malformed)
    }

    async fn call(
        &self,
        request: http::Result<Request<Full<Bytes>>>,
        limit: Duration,
    ) -> Result<(HeaderMap, Bytes), SupervisorError> {
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
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|_| SupervisorError::Malformed)?;
            Ok((head.headers, body.to_bytes()))
        };
        timeout(limit, exchange)
            .await
            .map_err(|_| SupervisorError::Timeout)?
    }
}

impl Supervisors for HttpSupervisors {
    fn init<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
    ) -> BoxFuture<'a, Result<(), SupervisorError>> {
        Box::pin(async move {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("{}{}", base(&at.ip), endpoint::INIT))
                .header(header::CONTENT_TYPE, "text/plain")
                .body(Full::from(token));
            match self.call(request, CALL_TIMEOUT).await {
                // It was initialized before; the next ready report decides.
                Err(SupervisorError::Refused(code)) if code == StatusCode::CONFLICT.as_u16() => {
                    Ok(())
                }
                other => other.map(|_| ()),
            }
        })
    }

    fn ready<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<ReadyReport, SupervisorError>> {
        Box::pin(async move {
            let (base, path, seconds) = (base(&at.ip), endpoint::READY, wait.as_secs());
            let request = Request::builder()
                .uri(format!("{base}{path}?timeout={seconds}"))
                .header(header::AUTHORIZATION, format!("Bearer {token}"))
                .body(Full::default());
            let (headers, body) = self.call(request, wait + CALL_TIMEOUT).await?;
            at.check_proof(&headers, &token, &body)?;
            let report = serde_json::from_slice(&body);
            at.check_key(report.map_err(|_| SupervisorError::Malformed)?)
        })
    }

    fn save<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<SaveReport, SupervisorError>> {
        Box::pin(self.post(at, endpoint::SAVE, token, wait))
    }

    fn snapshot<'a>(
        &'a self,
        at: &'a SupervisorAddress,
        token: String,
        wait: Duration,
    ) -> BoxFuture<'a, Result<SnapshotReport, SupervisorError>> {
        Box::pin(self.post(at, endpoint::SNAPSHOT, token, wait))
    }

    fn accepts_connections<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let connect = TcpStream::connect((ip, port));
            timeout(CONNECT_TIMEOUT, connect)
                .await
                .is_ok_and(|connected| connected.is_ok())
        })
    }

    fn server_idle_time<'a>(&'a self, ip: &'a str, port: u16) -> BoxFuture<'a, Option<Duration>> {
        Box::pin(async move {
            let uri = format!("{}/server_info", server(ip, port));
            let request = Request::builder().uri(uri).body(Full::default());
            let (_, body) = self.call(request, CALL_TIMEOUT).await.ok()?;
            idle_time(&body)
        })
    }
}

impl SupervisorAddress {
    /// Checks that a response comes from the Pod of the sandbox. The token names the Pod.
    fn check_proof(
        &self,
        headers: &HeaderMap,
        token: &str,
        body: &[u8],
    ) -> Result<(), SupervisorError> {
        let Some(identity) = self.identity else {
            return Ok(());
        };
        let proof = headers.get(PROOF_HEADER).and_then(|p| p.to_str().ok());
        let proven = proof.zip(self.ip.parse().ok());
        match proven {
            Some((proof, ip)) if identity.verify(proof, ip, token, body) => Ok(()),
            _ => Err(SupervisorError::Unproven),
        }
    }

    /// Checks that a dormant supervisor offers a key, so that no message is sent in clear.
    fn check_key(&self, report: ReadyReport) -> Result<ReadyReport, SupervisorError> {
        let is_dormant = report.state == SupervisorState::Dormant;
        if self.identity.is_some() && is_dormant && report.sealing_key.is_none() {
            return Err(SupervisorError::Malformed);
        }
        Ok(report)
    }
}

/// Part of `/server_info` that is read.
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

    /// Another Pod has the address: it may answer anything but the proof.
    #[test]
    fn ready_report_without_proof_is_rejected() {
        let own = IdentityKey::new([1; 32]);
        let at = |ip: &str, identity| SupervisorAddress {
            ip: ip.into(),
            identity,
        };
        let check = |identity: IdentityKey, from: &str, to: &SupervisorAddress| {
            let proof = identity.prove(from.parse().unwrap(), "token", b"body");
            let mut headers = HeaderMap::new();
            headers.insert(PROOF_HEADER, proof.parse().unwrap());
            to.check_proof(&headers, "token", b"body").is_ok()
        };
        let pod = at("10.0.0.1", Some(own));
        assert!(check(own, "10.0.0.1", &pod));
        assert!(!check(IdentityKey::new([2; 32]), "10.0.0.1", &pod));
        // Relayed from the Pod itself, which has another address by now.
        assert!(!check(own, "10.0.0.2", &pod));
        assert!(
            pod.check_proof(&HeaderMap::new(), "token", b"body")
                .is_err()
        );
        let old = at("10.0.0.1", None);
        assert!(old.check_proof(&HeaderMap::new(), "token", b"body").is_ok());
        let dormant = || ReadyReport::from(SupervisorState::Dormant);
        assert!(pod.check_key(dormant()).is_err() && old.check_key(dormant()).is_ok());
    }

    #[test]
    fn idle_time_tolerates_malformed_server_info() {
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
