//! Calls to the native executor as the command: before its processes are saved, and after they go on in
//! another sandbox.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use crds::contract::control::Init;
use crds::contract::{header, path, port, variable};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::net::TcpStream;

use super::loopback::{self, ExchangeError};

const PREPARE_SAVE_TIMEOUT: Duration = Duration::from_secs(10);
const RENEW_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum ExecutorCallError {
    #[error("the sandbox has no session key")]
    NoKey,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("the executor answers {0}")]
    Status(StatusCode),
    #[error("the executor does not answer in {} s", .0.as_secs())]
    Timeout(Duration),
}

/// Tells the command, if it is the native executor, that its processes are about to be saved, and waits
/// until it has ended its browser, which cannot be.
pub(super) async fn prepare_save(address: IpAddr, init: &Init) -> Result<(), ExecutorCallError> {
    if !is_executor(init) {
        return Ok(());
    }
    let key = session_key(init).unwrap_or_default();
    let body = Bytes::new();
    post(
        address,
        init,
        "/prepare_save",
        key,
        body,
        PREPARE_SAVE_TIMEOUT,
    )
    .await
}

/// Replaces the session key of the executor by that of the init message. `before` is that of the sandbox
/// whose processes go on.
pub(super) async fn renew(
    address: IpAddr,
    init: &Init,
    before: &str,
) -> Result<(), ExecutorCallError> {
    let key = session_key(init).ok_or(ExecutorCallError::NoKey)?;
    let body = json!({"session_api_key": key}).to_string().into();
    post(address, init, "/renew", before, body, RENEW_TIMEOUT).await
}

pub(super) fn is_executor(init: &Init) -> bool {
    let name = Path::new(path::EXECUTOR).file_name();
    match &init.command[..] {
        [program, subcommand, ..] => {
            Path::new(program).file_name() == name && subcommand == "serve"
        }
        _ => false,
    }
}

/// Session key of the sandbox, if it has one.
pub(super) fn session_key(init: &Init) -> Option<&str> {
    let key = init.environment.get(variable::SESSION_API_KEY)?;
    Some(key.as_str()).filter(|key| !key.is_empty())
}

async fn post(
    address: IpAddr,
    init: &Init,
    path: &str,
    key: &str,
    body: Bytes,
    limit: Duration,
) -> Result<(), ExecutorCallError> {
    let address = SocketAddr::new(address, init.probe.port.unwrap_or(port::RUNTIME));
    let request = Request::post(path)
        .header(header::SESSION_API_KEY, key)
        .body(Full::from(body))?;
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        Ok::<_, ExecutorCallError>(loopback::exchange(stream, request).await?)
    };
    let answer = tokio::time::timeout(limit, exchange).await;
    let (status, _) = answer.map_err(|_| ExecutorCallError::Timeout(limit))??;
    if status.is_success() {
        Ok(())
    } else {
        Err(ExecutorCallError::Status(status))
    }
}
