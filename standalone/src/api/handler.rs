//! Handling of one HTTP request: body limit, parsing, verb and encoding.

use std::sync::Arc;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::{
    ApiState, MAX_BODY_BYTES, discovery, encode,
    error::ApiError,
    request::{Request, Verb},
    verb_result::VerbResult,
    verbs,
    watch::{self, WatchHook},
};

/// Extension of a response: the request has changed an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed;

pub(super) async fn handle(state: Arc<ApiState>, request: http::Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    if let Some(document) = discovery::answer(&state, &parts) {
        return document;
    }
    let body = read(body).await;
    let request = body.and_then(|body| Request::parse(&state.registry, &parts, body));
    match request {
        Ok(request) => execute(&state, request, parts.extensions.get().cloned()).await,
        Err(error) => encode::failure(&error),
    }
}

async fn read(body: Body) -> Result<Bytes, ApiError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::TooLarge(MAX_BODY_BYTES)),
        Err(error) => Err(ApiError::BadRequest(format!(
            "the body could not be read: {error}"
        ))),
    }
}

async fn execute(state: &Arc<ApiState>, request: Request, hook: Option<WatchHook>) -> Response {
    let encoder = encode::ResponseEncoder::of(state, &request);
    let result = match request.verb {
        Verb::Watch => watch::stream(state, request, hook).map(VerbResult::Watch),
        verb if verb.is_write() => {
            let writing = Arc::clone(state);
            let job = move || verbs::write(&writing, &request);
            state.writer.run(job).await
        }
        _ => verbs::read(state, &request).await,
    };
    let is_changed = result.as_ref().is_ok_and(VerbResult::is_changed);
    let mut response = match result {
        Ok(result) => encode::encode(&encoder, result),
        Err(error) => encode::failure(&error),
    };
    if is_changed {
        response.extensions_mut().insert(Changed);
    }
    response
}
