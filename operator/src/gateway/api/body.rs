//! JSON bodies as clients send them: any content type, and every fault told as `detail`.

mod fault;

use std::time::Duration;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::ApiError;

/// Longest time for a body of at most 2 MiB.
const ARRIVAL: Duration = Duration::from_secs(30);

/// The body of a request. An empty one counts as `{}`.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = timeout(ARRIVAL, Bytes::from_request(request, state))
            .await
            .map_err(|_| ApiError::bad("the body did not arrive in time"))?
            .map_err(|error| refuse(&error))?;
        let json: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // serde would take a list for the fields of a structure, in their order.
        if !json.trim_ascii_start().starts_with(b"{") {
            return Err(ApiError::bad("the body is not a JSON object"));
        }
        fault::read(json).map(Self)
    }
}

fn refuse(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::TooLarge
    } else {
        ApiError::bad("the body could not be read")
    }
}
