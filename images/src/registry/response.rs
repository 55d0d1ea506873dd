//! Bodies and headers of responses, within limits.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::RETRY_AFTER;
use reqwest::Response;
use serde::Deserialize;

use super::RegistryError;

/// Bytes of a body that explains an error, and characters that are shown of it.
const MAX_WORDS: usize = 8 << 10;
const MAX_SHOWN: usize = 500;

/// Reads a body of at most `limit` bytes.
pub(super) async fn bounded(
    mut response: Response,
    limit: u64,
    what: &str,
) -> Result<Bytes, RegistryError> {
    let mut body = BytesMut::new();
    loop {
        let chunk = response.chunk().await;
        let chunk = chunk.map_err(|error| RegistryError::Unreachable {
            what: what.to_owned(),
            cause: causes(&error),
        })?;
        let Some(chunk) = chunk else {
            return Ok(body.freeze());
        };
        if (body.len() + chunk.len()) as u64 > limit {
            return Err(RegistryError::Refused {
                what: what.to_owned(),
                reason: format!("more than {limit} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
}

/// Pause that the registry asks for, in seconds.
pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[derive(Deserialize)]
struct Body {
    errors: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The registry's explanation, as `: WORDS`, or nothing. Control characters are removed.
async fn words(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_WORDS - body.len())]);
        if body.len() == MAX_WORDS {
            break;
        }
    }
    let text = match serde_json::from_slice::<Body>(&body) {
        Ok(body) => {
            let errors = body.errors.into_iter().map(|entry| {
                if entry.message.is_empty() {
                    entry.code
                } else {
                    entry.message
                }
            });
            errors.collect::<Vec<_>>().join(", ")
        }
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    let printable = text
        .trim()
        .chars()
        .filter(|character| !character.is_control());
    let shown: String = printable.take(MAX_SHOWN).collect();
    if shown.is_empty() {
        return shown;
    }
    format!(": {shown}")
}

/// Error of a response, with the words of the registry.
pub(super) async fn failure(response: Response, what: &str) -> RegistryError {
    let status = response.status();
    let what = what.to_owned();
    let words = words(response).await;
    match status {
        StatusCode::NOT_FOUND => RegistryError::NotFound { what, words },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Denied { what, words },
        _ => RegistryError::Status {
            what,
            status: status.as_u16(),
            words,
        },
    }
}

/// Text of an error and of what caused it, without the URL, which may contain a signature.
pub(super) fn causes(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "no answer in time".to_owned()
    } else if error.is_connect() {
        "cannot connect".to_owned()
    } else {
        "request failed".to_owned()
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
