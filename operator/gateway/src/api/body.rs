//! Reads JSON bodies: any content type, and every fault is a `detail`.

mod deserialize_error;

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::ApiError;

/// Time for a body of at most 2 MiB to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Body of a request. An empty one counts as `{}`.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = timeout(BODY_TIMEOUT, Bytes::from_request(request, state))
            .await
            .map_err(|_| ApiError::bad_request("the body did not arrive in time"))?
            .map_err(|error| reject(&error))?;
        let json: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // serde would read an array as the fields of a structure.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(ApiError::bad_request("the body is not a JSON object"));
        }
        deserialize_error::read(json).map(Self)
    }
}

fn reject(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::TooLarge
    } else {
        ApiError::bad_request("the body could not be read")
    }
}
