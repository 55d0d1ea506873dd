//! Notice to the native executor that its processes are about to be saved, so that it ends its
//! browser, which cannot be.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crds::contract::control::Init;
use crds::contract::{header, path, port, variable};
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::net::TcpStream;

use super::loopback::{self, ExchangeError};

const PATH: &str = "/prepare_save";
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum NoticeError {
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

/// Tells the command, if it is the native executor, and waits until it is prepared.
pub(super) async fn announce(address: IpAddr, init: &Init) -> Result<(), NoticeError> {
    if !is_executor(init) {
        return Ok(());
    }
    let address = SocketAddr::new(address, init.probe.port.unwrap_or(port::RUNTIME));
    let key = init.environment.get(variable::SESSION_API_KEY);
    let request = Request::post(PATH)
        .header(header::SESSION_API_KEY, key.map_or("", String::as_str))
        .body(Full::default())?;
    let exchange = async {
        let stream = TcpStream::connect(address).await?;
        Ok::<_, NoticeError>(loopback::exchange(stream, request).await?)
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange).await;
    let (status, _) = answer.map_err(|_| NoticeError::Timeout)??;
    if status.is_success() {
        Ok(())
    } else {
        Err(NoticeError::Status(status))
    }
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
