//! Bounded reads of the Kubernetes API. Objects are JSON, so that no field of another version of
//! Kubernetes stands in the way.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use serde_json::Value;
use shared::kubernetes::error_text::with_sources;

const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 16 << 20;
const MAX_TEXT_CHARS: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the kubeconfig has no right to read {0}")]
    Forbidden(String),
    #[error("the API server has no {0}")]
    NotFound(String),
    #[error("cannot read {path}: {cause}")]
    Failed { path: String, cause: String },
}

/// Document, and the time by the clock of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) body: Value,
    pub(crate) date: Option<Timestamp>,
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Response, ReadError> {
    send(client, Method::GET, path, Vec::new()).await
}

pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> Result<Response, ReadError> {
    send(client, Method::POST, path, body.to_string().into_bytes()).await
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Response, ReadError> {
    let failed = |cause: String| ReadError::Failed {
        path: path.into(),
        cause: cause.chars().take(MAX_TEXT_CHARS).collect(),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body.into())
        .map_err(|error| failed(error.to_string()))?;
    let exchange = async {
        let response = client.send(request).await;
        let (head, body) = response
            .map_err(|error| failed(with_sources(&error)))?
            .into_parts();
        match head.status.as_u16() {
            401 | 403 => return Err(ReadError::Forbidden(path.into())),
            404 => return Err(ReadError::NotFound(path.into())),
            200..300 => {}
            code => return Err(failed(format!("status {code}"))),
        }
        let body = Limited::new(body, MAX_BYTES).collect().await;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        let date = head.headers.get("date").and_then(|date| date.to_str().ok());
        Ok(Response {
            body: serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))?,
            date: date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()),
        })
    };
    let timeout = tokio::time::timeout(TIMEOUT, exchange).await;
    timeout.unwrap_or_else(|_| Err(failed("no response within 10 s".into())))
}
