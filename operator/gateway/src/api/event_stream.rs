//! Requests for server-sent events (HTML, section 9.2), and their responses.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use crds::contract::header::API_KEY;
use futures::{Stream, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};

use crate::events::ResponseAbort;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells nginx not to collect the response.
const NOT_BUFFERED: (HeaderName, &str) = (HeaderName::from_static("x-accel-buffering"), "no");

/// Returns the cursor of an earlier stream; `None` for an empty one.
pub(super) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    last.filter(|id| !id.is_empty())
}

/// Returns the API key of an authenticated request.
pub(super) fn api_key(headers: &HeaderMap) -> &str {
    let key = headers.get(API_KEY).and_then(|key| key.to_str().ok());
    key.unwrap_or_default()
}

/// Responds with the parts of a stream; `connection` ends that of a client that reads nothing.
pub(super) fn response(
    parts: impl Stream<Item = Bytes> + Send + 'static,
    connection: ResponseAbort,
) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-cache"),
        NOT_BUFFERED,
    ];
    let body = Body::from_stream(parts.map(Ok::<_, Infallible>));
    let mut response = (headers, body).into_response();
    response.extensions_mut().insert(connection);
    response
}
