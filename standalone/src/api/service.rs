//! Entry points: a tower service for clients in the same process, and an HTTP handler.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::Request;
use tower::BoxError;

use super::{ApiState, handler};

/// API as a tower service.
#[derive(Clone, Debug)]
pub struct ApiService {
    pub(super) state: Arc<ApiState>,
}

impl<B> tower::Service<Request<B>> for ApiService
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        handler::handle(Arc::clone(&self.state), request.map(Body::new))
            .map(Ok)
            .boxed()
    }
}
