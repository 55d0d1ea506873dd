//! The remote runtime API that `OpenHands` clients call, one file per endpoint
//! (`docs/specs/runtime-api.md`, section 1).
//!
//! Every response is JSON, errors included. There are no redirects, cookies, 409 or 429, because
//! clients treat them as failures.

mod admin;
mod audit;
mod auth;
mod batch;
mod body;
mod build_image;
mod endpoint;
mod error;
mod health;
mod image;
pub mod info;
mod list;
mod openapi;
mod pause;
mod resume;
mod runtime;
mod session;
mod start;
mod state_change;
mod stop;
mod tombstones;
mod warm_configs;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::{Extension, Router};
use http::{Method, Request, Response, StatusCode, Uri};

use super::admin_auth::AdminAuth;
use super::sandboxes::Sandboxes;
use super::warm_configs::WarmConfigStore;
use super::{ApiSettings, GatewayConfig, Tenants};
use endpoint::Endpoint;

pub use error::ApiError;
pub(super) use error::ErrorBody;
pub use info::RuntimeInfo;

/// Largest body of a request: an environment of 1 MiB fits after JSON escaping.
const MAX_BODY_BYTES: usize = 2 << 20;

/// State that all endpoints share.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) sandboxes: Sandboxes,
    pub(super) config: Arc<GatewayConfig>,
    pub(super) tenants: Tenants,
    pub(super) settings: ApiSettings,
    pub(super) configs: WarmConfigStore,
    pub(super) admin: Option<Arc<AdminAuth>>,
}

type Shared = axum::extract::State<Arc<Api>>;

/// Returns all endpoints.
fn endpoints() -> Vec<Endpoint> {
    let mut all = vec![
        start::endpoint(),
        stop::endpoint(),
        pause::endpoint(),
        resume::endpoint(),
        list::endpoint(),
        list::old_endpoint(),
        runtime::endpoint(),
        batch::endpoint(),
        session::endpoint(),
        image::prefix_endpoint(),
        image::exists_endpoint(),
        build_image::endpoint(),
        build_image::status_endpoint(),
        warm_configs::endpoint(),
        health::endpoint(),
        openapi::document_endpoint(),
        openapi::page_endpoint(),
    ];
    all.extend(admin::endpoints());
    all
}

/// Builds the router of all endpoints.
pub(super) fn router(api: Api) -> Router {
    let endpoints = endpoints();
    let document = openapi::Document::of(&endpoints);
    let routes = endpoints.into_iter();
    routes
        .fold(Router::new(), |router, endpoint| endpoint.mount(router))
        .fallback(|| async { ApiError::UnknownPath })
        .method_not_allowed_fallback(|| async { ApiError::WrongMethod })
        .layer(axum::middleware::from_fn(answer_options))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(Extension(document))
        .with_state(Arc::new(api))
}

/// Removes slashes around a path: a base URL that ends in a slash gives `//start`. The end of a
/// session id is kept, because it may be a slash.
pub(super) fn normalize_path(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path();
    let mut wanted = format!("/{}", path.trim_matches('/'));
    if wanted.starts_with(session::PATH) && wanted != batch::PATH {
        wanted = format!("/{}", path.trim_start_matches('/'));
    }
    if path != wanted {
        let wanted = match request.uri().query() {
            Some(query) => format!("{wanted}?{query}"),
            None => wanted,
        };
        if let Ok(uri) = Uri::try_from(wanted) {
            *request.uri_mut() = uri;
        }
    }
    request
}

async fn answer_options(request: Request<Body>, next: axum::middleware::Next) -> Response<Body> {
    if request.method() != Method::OPTIONS {
        return next.run(request).await;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
