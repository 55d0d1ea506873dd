//! Bodies and headers of responses, within limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use reqwest::Response;
use serde::Deserialize;

use super::RegistryError;
use super::send::causes;

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
pub(super) async fn words(mut response: Response) -> String {
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
