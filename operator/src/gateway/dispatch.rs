//! Decides who answers a request: a sandbox, if host or path name one, or else the API. The last
//! net as well: a panic on the way becomes an answer.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use tower::ServiceExt as _;

use super::api::ApiError;
use super::proxy::{Proxy, Target};

#[derive(Debug)]
pub(super) struct Dispatch {
    api: Router,
    proxy: Proxy,
}

impl Dispatch {
    pub(super) fn new(api: Router, proxy: Proxy) -> Self {
        Self { api, proxy }
    }

    pub(super) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    pub(super) async fn respond(&self, request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        // A panic leaves nothing half-done behind: all state of a request is its own.
        let answer = AssertUnwindSafe(self.answer(request, peer)).catch_unwind();
        answer.await.unwrap_or_else(|_| {
            tracing::error!("a request panicked");
            ApiError::Panicked.into_response()
        })
    }

    async fn answer(&self, request: Request<Body>, peer: SocketAddr) -> Response<Body> {
        // One would make a tunnel to anywhere of it, the other shows headers that we add.
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            return ApiError::WrongMethod.into_response();
        }
        match self.proxy.target(&request) {
            Ok(Target::Sandbox(route)) => self.proxy.forward(route, request, peer).await,
            Ok(Target::Api) => self.call_api(request).await,
            Err(error) => error.into_response(),
        }
    }

    async fn call_api(&self, request: Request<Body>) -> Response<Body> {
        let request = super::api::normalise(request);
        let Ok(response) = self.api.clone().oneshot(request).await;
        response
    }
}
