//! The remote runtime API that `OpenHands` clients call (`docs/specs/runtime-api.md`, section 1).
//!
//! Every response is JSON, errors included. There are no redirects or cookies, and only snapshots and
//! event streams, which the clients of that specification do not know, answer 409 or 429: those
//! clients treat them as failures.

mod admin;
mod audit;
mod auth;
mod batch;
mod body;
mod build;
mod build_list;
mod build_logs;
mod completion;
mod endpoint;
mod error;
mod event_stream;
mod events;
mod image;
mod info;
mod logs;
mod openapi;
mod rate_limit;
mod resources;
mod route_tag;
mod sandbox_snapshots;
mod session;
mod start;
mod state_change;
mod tenant_limits;
mod usage;

use std::fmt::Debug;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::{Method, Request, Response, StatusCode, Uri};
use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::admin_auth::AdminAuth;
use super::builds::Builds;
use super::events::Events;
use super::logs::Logs;
use super::sandbox_snapshots::Snapshots;
use super::sandboxes::{SandboxError, Sandboxes};
use super::warm_configs::WarmConfigStore;
use super::{GatewayConfig, Tenants};
use endpoint::{Access, Endpoint, OPERATION};
use shared::image_builds::ImageBuilds;
use shared::index::Key;
use shared::resources::ResourceDefaults;
use shared::tenants::TenantError;

pub(super) use error::{ApiError, OutcomeTag, error_response};
pub(super) use route_tag::RouteTag;

/// Largest body of a request: an environment of 1 MiB fits after JSON escaping.
pub(super) const MAX_BODY_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct Api {
    sandboxes: Sandboxes,
    tenants: Tenants,
    configs: WarmConfigStore,
    builds: Arc<Builds>,
    snapshots: Snapshots,
    events: Arc<Events>,
    logs: Arc<Logs>,
    requests: Arc<dyn ForwardedRequests>,
    /// Resources of sandboxes that set none.
    resources: ResourceDefaults,
    /// `None` without a password.
    admin: Option<Arc<AdminAuth>>,
}

/// Requests that this replica has forwarded to sandboxes.
pub(super) trait ForwardedRequests: Debug + Send + Sync {
    /// End of the last one, or else the start of this replica, which knows of no earlier one. `None`
    /// while one is open.
    fn idle_since(&self, sandbox: &Key) -> Option<Timestamp>;
}

type Shared = State<Arc<Api>>;

impl Api {
    pub(super) fn new(
        client: &kube::Client,
        sandboxes: Sandboxes,
        tenants: Tenants,
        builds: Arc<Builds>,
        (events, logs): (Arc<Events>, Arc<Logs>),
        requests: Arc<dyn ForwardedRequests>,
    ) -> Self {
        let settings = &sandboxes.config.settings;
        let password = settings.admin_password.clone();
        // Charts set the variable of an absent value to the empty text.
        let password = password.filter(|password| !password.expose_secret().is_empty());
        let admin = password.map(|password| AdminAuth::new(password, sandboxes.keys.admin()));
        Self {
            configs: WarmConfigStore::new(client, &sandboxes.config),
            snapshots: Snapshots::new(client, &sandboxes.config.namespace),
            admin: admin.map(Arc::new),
            resources: sandboxes.config.resources(),
            sandboxes,
            tenants,
            builds,
            events,
            logs,
            requests,
        }
    }

    fn config(&self) -> &GatewayConfig {
        &self.sandboxes.config
    }
}

/// Returns all endpoints, in the order of the document.
fn endpoints(builds: ImageBuilds) -> Vec<Endpoint> {
    let mut all = vec![start::endpoint()];
    all.extend(state_change::endpoints());
    all.extend(session::list_endpoints());
    all.extend([
        session::idle_endpoint(),
        session::runtime_endpoint(),
        batch::endpoint(),
        session::endpoint(),
        logs::endpoint(),
        events::endpoint(),
    ]);
    all.extend(sandbox_snapshots::endpoints());
    match builds {
        ImageBuilds::Off => all.extend(image::endpoints()),
        ImageBuilds::Alias | ImageBuilds::Append | ImageBuilds::Full => {
            all.extend(build::endpoints());
            all.push(build_list::endpoint());
        }
    }
    if builds == ImageBuilds::Full {
        all.push(build_logs::endpoint());
    }
    all.extend([
        admin::configs_endpoint(),
        usage::endpoint(),
        health_endpoint(),
    ]);
    all.extend(openapi::endpoints());
    all.extend(admin::endpoints());
    all
}

#[derive(Debug, Serialize, JsonSchema)]
struct Health {
    status: &'static str,
}

fn health_endpoint() -> Endpoint {
    Endpoint::new(OPERATION, "GET", "/health", get(health))
        .documented("getHealth", "Reports that this replica can serve requests.")
        .access(Access::Public)
        .response::<Health>(200)
        .errors(&[503])
}

/// Fails until index and API keys are loaded: until then, clients could get a wrong 404 or 401.
async fn health(State(api): Shared) -> Result<Json<Health>, ApiError> {
    if !api.sandboxes.index.is_synced() {
        return Err(SandboxError::NotSynced.into());
    }
    if !api.tenants.is_loaded() {
        return Err(TenantError::NotLoaded.into());
    }
    Ok(Json(Health { status: "ok" }))
}

pub(super) fn router(api: Api) -> Router {
    let endpoints = endpoints(api.config().image_builds());
    let document = openapi::Document::of(&endpoints);
    let is_traced = api.config().vitals.traces.get().is_some();
    let router = endpoints
        .into_iter()
        .fold(Router::new(), |router, endpoint| endpoint.mount(router))
        .fallback(|| async { ApiError::UnknownPath })
        .method_not_allowed_fallback(|| async { ApiError::WrongMethod })
        .layer(axum::middleware::from_fn(completion::complete))
        .layer(axum::middleware::from_fn(answer_options))
        .layer(axum::middleware::from_fn(rate_limit::add_headers))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(Extension(document))
        .with_state(Arc::new(api));
    if is_traced {
        return router.layer(axum::middleware::from_fn(route_tag::add_route));
    }
    router
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
