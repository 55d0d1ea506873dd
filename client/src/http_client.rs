//! HTTP: one attempt at a request, and what its failure means for another one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::StatusCode;
use reqwest::{Certificate, RequestBuilder, Response};
use serde::de::DeserializeOwned;

use crate::{Error, Settings};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);
/// An observation may have a file of 256 MiB in it, and its base64 form.
const MAX_BODY_BYTES: usize = 512 << 20;
/// Error bodies are short texts.
const MAX_ERROR_BYTES: usize = 64 << 10;
const MAX_DETAIL_CHARS: usize = 2000;

/// Creates the client that all calls share. HTTP/1.1 only: terminals need its upgrade.
pub(crate) fn build(settings: &Settings) -> Result<reqwest::Client, Error> {
    // Another part of the process may have done it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kept = if settings.keep_connections {
        usize::MAX
    } else {
        0
    };
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("sandbox-client/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(TCP_KEEPALIVE)
            .pool_max_idle_per_host(kept)
            .redirect(reqwest::redirect::Policy::none())
            .http1_only();
        match (settings.connect_to, settings.url.host_str()) {
            // A proxy of the environment does not know the address.
            (Some(address), Some(host)) => builder.no_proxy().resolve(host, address),
            _ => builder,
        }
    };
    // An image of one program has no certificates of authorities: those of Mozilla are used there.
    let built = builder().build().or_else(|_| {
        let authorities = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let authorities: Vec<_> = authorities
            .map(|authority| Certificate::from_der(authority))
            .collect::<Result<_, _>>()?;
        builder().tls_certs_only(authorities).build()
    });
    built.map_err(|error| Error::Settings(format!("cannot set up TLS: {}", causes(&error))))
}

/// Failure of one attempt.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request cannot be made.
    Request(String),
    Connection {
        url: String,
        reason: String,
        sent: bool,
    },
    Status {
        method: String,
        path: String,
        status: StatusCode,
        detail: String,
    },
}

impl Failure {
    /// True if the request was not carried out: no connection, or 503 of the gateway, which it answers
    /// for requests that it did not forward.
    pub(crate) fn is_unprocessed(&self) -> bool {
        match self {
            Self::Request(_) => false,
            Self::Connection { sent, .. } => !sent,
            Self::Status { status, .. } => *status == StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// True if another attempt at a request that may be carried out twice can succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::Request(_) => false,
            Self::Connection { .. } => true,
            Self::Status { status, .. } => matches!(status.as_u16(), 502..=504),
        }
    }

    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Request(_) | Self::Connection { .. } => None,
            Self::Status { status, .. } => Some(*status),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Request(reason) => Self::Settings(reason),
            Failure::Connection { url, reason, sent } => Self::Unreachable { url, reason, sent },
            Failure::Status {
                method,
                path,
                status,
                detail,
            } => match status {
                StatusCode::UNAUTHORIZED => Self::Unauthorized(detail),
                StatusCode::FORBIDDEN => Self::Forbidden(detail),
                StatusCode::NOT_IMPLEMENTED => Self::Unsupported(detail),
                StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable(detail),
                status => Self::Rejected {
                    method,
                    path,
                    status,
                    detail,
                },
            },
        }
    }
}

/// Sends a request; the response if its status is a success, with the body unread.
pub(crate) async fn attempt(request: RequestBuilder) -> Result<Response, Failure> {
    let (client, request) = request.build_split();
    let request = request.map_err(|error| Failure::Request(causes(&error)))?;
    let method = request.method().to_string();
    // Queries of terminals and links may have secrets.
    let url = format!(
        "{}{}",
        request.url().origin().ascii_serialization(),
        request.url().path()
    );
    let path = request.url().path().to_owned();
    let response = client
        .execute(request)
        .await
        .map_err(|error| Failure::Connection {
            url,
            sent: !error.is_connect(),
            reason: causes(&error),
        })?;
    let status = response.status();
    if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let detail = detail(response).await;
    Err(Failure::Status {
        method,
        path,
        status,
        detail,
    })
}

/// Reads a JSON body of bounded size.
pub(crate) async fn json<T: DeserializeOwned>(response: Response) -> Result<T, Error> {
    json_within(response, MAX_BODY_BYTES).await
}

/// Reads a JSON body of at most `limit` bytes.
pub(crate) async fn json_within<T: DeserializeOwned>(
    response: Response,
    limit: usize,
) -> Result<T, Error> {
    let server = response.url().origin().ascii_serialization();
    let body = read(response, limit).await?;
    serde_json::from_slice(&body).map_err(|error| Error::Protocol(server, error.to_string()))
}

async fn read(response: Response, limit: usize) -> Result<Bytes, Error> {
    let url = response.url().origin().ascii_serialization();
    let mut body = BytesMut::new();
    let mut parts = response.bytes_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| broken(&url, &error))?;
        if body.len() + part.len() > limit {
            return Err(Error::Protocol(
                url,
                format!("the body exceeds {limit} bytes"),
            ));
        }
        body.extend_from_slice(&part);
    }
    Ok(body.freeze())
}

/// A connection that broke while a response was read.
pub(crate) fn broken(url: &str, error: &reqwest::Error) -> Error {
    Error::Unreachable {
        url: url.into(),
        reason: causes(error),
        sent: true,
    }
}

/// Returns the `detail` of an error body, or the body, shortened.
async fn detail(response: Response) -> String {
    let status = response.status();
    let body = read(response, MAX_ERROR_BYTES).await.unwrap_or_default();
    let parsed: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let detail = parsed.as_ref().and_then(|body| body["detail"].as_str());
    let text = detail.map_or_else(|| String::from_utf8_lossy(&body), Into::into);
    match text.trim() {
        "" => status.canonical_reason().unwrap_or("no explanation").into(),
        text => text.chars().take(MAX_DETAIL_CHARS).collect(),
    }
}

/// Joins an error with its causes, without the URL that reqwest adds.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = error.to_string();
        next = error.source();
        // The outer texts of reqwest say where, the innermost why.
        if next.is_none() || !part.starts_with("error sending request") {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
    }
    text
}
