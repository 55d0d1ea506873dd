//! HTTP requests to a program of this Pod.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

const MAX_BODY: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the response is too long or incomplete")]
    Body,
}

/// Sends one request, whose URI is a path, and reads the response.
pub(super) async fn exchange(
    stream: TcpStream,
    mut request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), ExchangeError> {
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|_| ExchangeError::Body)?;
        Ok((status, body.to_bytes()))
    };
    // The connection only moves bytes; if it ends first, the exchange fails.
    let driven = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        outcome = exchange => outcome,
        outcome = driven => outcome,
    }
}
