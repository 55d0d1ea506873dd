//! New secrets for the native executor that goes on in another sandbox.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crds::contract::control::Init;
use crds::contract::{header, port, variable};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::net::TcpStream;

use super::loopback::{self, ExchangeError};

const PATH: &str = "/renew";
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum RenewError {
    #[error("the sandbox has no session key")]
    NoKey,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    #[error("{PATH} answers {0}")]
    Status(StatusCode),
    #[error("{PATH} does not answer in {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Replaces the session key of the server by that of the init message. `before` is that of the
/// sandbox whose processes go on.
pub(super) async fn renew(address: IpAddr, init: &Init, before: &str) -> Result<(), RenewError> {
    let address = SocketAddr::new(address, init.probe.port.unwrap_or(port::RUNTIME));
    let key = init.environment.get(variable::SESSION_API_KEY);
    let key = key.filter(|key| !key.is_empty()).ok_or(RenewError::NoKey)?;
    let body = json!({"session_api_key": key}).to_string();
    let request = Request::post(PATH)
        .header(header::SESSION_API_KEY, before)
        .body(Full::from(body))?;
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        Ok::<_, RenewError>(loopback::exchange(stream, request).await?)
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    let (status, _) = answer.map_err(|_| RenewError::Timeout)??;
    if status.is_success() {
        Ok(())
    } else {
        Err(RenewError::Status(status))
    }
}
