//! The remote runtime API that `OpenHands` clients call (runtime API spec 1): one file per endpoint.
//!
//! Every answer is a JSON object, errors included; nothing ever redirects, sets a cookie or
//! answers 409 or 429, because the clients cannot take it.

mod auth;
mod batch;
mod body;
mod error;
mod health;
pub mod info;
mod list;
mod pause;
mod resume;
mod runtime;
mod session;
mod start;
mod state;
mod stop;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use http::{Method, Request, Response, StatusCode, Uri};

use super::sandboxes::Sandboxes;
use super::{GatewayConfig, Tenants};

pub use error::ApiError;
pub(super) use error::ErrorBody;
pub use info::RuntimeInfo;

/// Largest body of a request. An environment of 1 MiB fits, whatever JSON escapes of it.
const MAX_BODY: usize = 2 << 20;

/// What every endpoint works with.
#[derive(Debug)]
struct Api {
    sandboxes: Sandboxes,
    config: Arc<GatewayConfig>,
    tenants: Tenants,
}

type Shared = axum::extract::State<Arc<Api>>;

/// All endpoints.
pub(super) fn router(sandboxes: Sandboxes, config: Arc<GatewayConfig>, tenants: Tenants) -> Router {
    Router::new()
        .route("/start", post(start::start))
        .route("/stop", post(stop::stop))
        .route("/pause", post(pause::pause))
        .route("/resume", post(resume::resume))
        .route("/list", get(list::list))
        .route("/runtime/{runtime_id}", get(runtime::runtime))
        .route("/sessions/batch", get(batch::batch))
        .route("/sessions/{*session_id}", get(session::session))
        .route("/health", get(health::health))
        .fallback(|| async { ApiError::UnknownPath })
        .method_not_allowed_fallback(|| async { ApiError::WrongMethod })
        .layer(axum::middleware::from_fn(answer_options))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(Api {
            sandboxes,
            config,
            tenants,
        }))
}

/// Takes away what clients add to a path by mistake: a base URL that ends in a slash gives `//start`.
pub(super) fn normalise(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path();
    let wanted = format!("/{}", path.trim_matches('/'));
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
