//! The two doors: a tower service for clients in the same process, where a broken connection can be real, and a handler
//! for HTTP, where it has to be an answer.

use std::{
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, StatusCode};
use tower::BoxError;

use super::{EmbeddedApi, error::ApiError, respond};

/// The connection broke; nothing is known about the request.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("connection reset by the embedded API")]
pub struct Disconnected;

/// The API as a tower service.
#[derive(Clone, Debug)]
pub struct ApiService {
    api: EmbeddedApi,
}

impl ApiService {
    pub(super) fn new(api: EmbeddedApi) -> Self {
        Self { api }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.api.inner.clone();
        async move { Ok(respond::respond(inner, request.map(Body::new)).await?) }.boxed()
    }
}

pub(super) async fn serve(
    api: EmbeddedApi,
    request: Request<Body>,
) -> Result<Response, Infallible> {
    let answer = respond::respond(api.inner, request).await;
    let away = || respond::encode::failure(&ApiError::Injected(StatusCode::SERVICE_UNAVAILABLE));
    Ok(answer.unwrap_or_else(|_: Disconnected| away()))
}
