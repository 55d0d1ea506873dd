//! Handling of one HTTP request: body limit, parsing, verb and encoding.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::BoxError;

use super::{
    ApiState, EmbeddedApi, MAX_BODY_BYTES, discovery, encode,
    error::ApiError,
    request::{Request, Verb},
    verbs, watch,
};

impl<B> tower::Service<http::Request<B>> for EmbeddedApi
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let response = respond(Arc::clone(&self.state), request.map(Body::new));
        let response = response.map(|result| Ok(result.unwrap_or_else(|e| encode::failure(&e))));
        response.boxed()
    }
}

async fn respond(state: Arc<ApiState>, request: http::Request<Body>) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    if let Some(document) = discovery::respond(&state.registry, &parts) {
        return document;
    }
    let request = Request::parse(&state.registry, &parts, read(body).await?)?;
    match request.verb {
        _ if request.is_session() => verbs::open_session(&state, &request, &mut parts).await,
        Verb::Watch => watch::stream(state, request),
        verb if verb.is_write() => write(state, request).await,
        _ => verbs::read(&state, &request).await,
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

/// A commit waits for the disk, which must not block the runtime's threads: they serve the proxy.
async fn write(state: Arc<ApiState>, request: Request) -> Result<Response, ApiError> {
    let Some(writers) = &state.writers else {
        return verbs::write(&state, &request);
    };
    let _turn = writers.lock().await;
    let writing = Arc::clone(&state);
    let written = tokio::task::spawn_blocking(move || verbs::write(&writing, &request)).await;
    written.map_err(|error| ApiError::Internal(error.to_string()))?
}
