//! The admin API: login by challenge, then a bearer token (`docs/specs/runtime-api.md`, section
//! 1.11). Warm runtime configs are here too: administrators change them, and every client may list
//! them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{ConnectInfo, FromRequestParts, Path, State};
use axum::routing::{delete, get, post, put};
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::auth::{RateLimitedCaller, client_address};
use super::body::Body;
use super::endpoint::{ADMINISTRATION, Access, Endpoint, WARM_CONFIGS};
use super::{Api, ApiError, Shared, audit};
use crate::admin_auth::{AdminAuth, AdminChallenge, AdminError};
use crate::sandboxes::SandboxError;
use crate::warm_configs::{ConfigRequest, WarmConfig};

/// Largest body of a login: anyone may send one.
const MAX_LOGIN_BYTES: usize = 4 * 1024;
const CONFIG_PATH: &str = "/api/admin/warm-runtime-configs/{*name}";

/// Proof of the password; without `Debug`.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "AdminLogin")]
struct LoginRequest {
    challenge: String,
    /// Hexadecimal digits of PBKDF2-HMAC-SHA256 of the password over salt and challenge.
    hash: String,
}

/// The token; without `Debug`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AdminToken")]
struct LoginResponse {
    token: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKey")]
struct ApiKeyEntry {
    id: String,
    name: String,
    /// Empty: only hashes are stored.
    key_value: &'static str,
    /// Null: no limit.
    max_runtimes: Option<u32>,
    /// Null: there is no accounting.
    remaining_credits: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigDeleted")]
struct Deleted {
    message: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WarmConfigs {
    configs: Vec<WarmConfig>,
}

pub(super) fn configs_endpoint() -> Endpoint {
    let path = "/api/warm-runtime-configs";
    Endpoint::new(WARM_CONFIGS, "GET", path, get(warm_configs))
        .documented("listWarmConfigs", "Lists the warm runtime configs.")
        .response::<WarmConfigs>(200)
}

pub(super) fn endpoints() -> [Endpoint; 5] {
    let endpoint = |method, path, route| {
        Endpoint::new(ADMINISTRATION, method, path, route).access(Access::Admin)
    };
    [
        endpoint("GET", "/api/admin/challenge", get(challenge))
            .documented(
                "getAdminChallenge",
                "Returns a challenge, valid for one login within five minutes.",
            )
            .access(Access::Public)
            .response::<AdminChallenge>(200)
            .errors(&[403]),
        endpoint("POST", "/api/admin/login", post(login))
            .documented(
                "logInAsAdmin",
                "Returns a token, valid for a day, in exchange for a proof of the password.",
            )
            .access(Access::Public)
            .max_body(MAX_LOGIN_BYTES)
            .request_body::<LoginRequest>(
                r#"{"challenge": "CHALLENGE", "hash": "HEXADECIMAL DIGITS"}"#,
            )
            .response::<LoginResponse>(200)
            .errors(&[400, 401, 403, 503]),
        endpoint("GET", "/api/admin/api-keys", get(keys))
            .documented("listApiKeys", "Lists the names and limits of API keys.")
            .response::<Vec<ApiKeyEntry>>(200)
            .errors(&[401, 403]),
        endpoint("PUT", CONFIG_PATH, put(put_config))
            .documented(
                "putWarmConfig",
                "Stores a warm runtime config as a SandboxPool.",
            )
            .request_body::<ConfigRequest>(
                r#"{"image": "ghcr.io/openhands/agent-server:latest-python", "count": 2}"#,
            )
            .response::<WarmConfig>(200)
            .errors(&[400, 401, 403, 503]),
        endpoint("DELETE", CONFIG_PATH, delete(delete_config))
            .documented("deleteWarmConfig", "Removes a stored warm runtime config.")
            .response::<Deleted>(200)
            .errors(&[401, 403, 404, 503]),
    ]
}

/// Extractor that accepts requests with a valid administrator token.
#[derive(Debug)]
struct Administrator {
    address: IpAddr,
}

impl FromRequestParts<Arc<Api>> for Administrator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let admin = api.admin()?;
        let line = parts.headers.get(AUTHORIZATION);
        let line = line.and_then(|line| line.to_str().ok()).unwrap_or_default();
        let (kind, token) = line.split_once(' ').unwrap_or_default();
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err(AdminError::Token.into());
        }
        admin.check(token.trim(), Timestamp::now())?;
        let address = client_address(parts);
        Ok(Self { address })
    }
}

/// An enabled administration. Extracted before a body, so that none is read while it is disabled.
#[derive(Debug)]
struct EnabledAdmin(Arc<AdminAuth>);

impl FromRequestParts<Arc<Api>> for EnabledAdmin {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        Ok(Self(api.admin()?.clone()))
    }
}

impl Api {
    fn admin(&self) -> Result<&Arc<AdminAuth>, ApiError> {
        Ok(self.admin.as_ref().ok_or(AdminError::Disabled)?)
    }
}

async fn challenge(EnabledAdmin(admin): EnabledAdmin) -> Result<Json<AdminChallenge>, ApiError> {
    Ok(Json(admin.challenge(Timestamp::now())?))
}

async fn login(
    EnabledAdmin(admin): EnabledAdmin,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Body(request): Body<LoginRequest>,
) -> Result<Json<LoginResponse>, ApiError> {
    let now = Timestamp::now();
    let login = admin.login(request.challenge, &request.hash, peer.ip(), now);
    let result = login.await.map_err(ApiError::from);
    audit::admin("login", peer.ip(), "", result.as_ref().map(drop));
    result.map(|token| Json(LoginResponse { token }))
}

async fn keys(State(api): Shared, _: Administrator) -> Json<Vec<ApiKeyEntry>> {
    let all = api.tenants.all();
    let entries = all.iter().map(|tenant| ApiKeyEntry {
        id: tenant.name.clone(),
        name: tenant.name.clone(),
        key_value: "",
        max_runtimes: tenant.limits.sandboxes,
        remaining_credits: None,
    });
    Json(entries.collect())
}

async fn warm_configs(
    State(api): Shared,
    caller: RateLimitedCaller,
) -> Result<Json<WarmConfigs>, ApiError> {
    // Concurrent callers share one list; each waits no longer than its own time limit.
    let configs = timeout(caller.remaining_time(), api.configs.list()).await;
    let configs = configs.map_err(|_| SandboxError::Timeout)??.to_vec();
    Ok(Json(WarmConfigs { configs }))
}

async fn put_config(
    State(api): Shared,
    Administrator { address }: Administrator,
    name: Result<Path<String>, PathRejection>,
    Body(request): Body<ConfigRequest>,
) -> Result<Json<WarmConfig>, ApiError> {
    let Path(name) = name?;
    let stored = api.configs.put(&name, request).await;
    let stored = stored.map_err(ApiError::from);
    audit::admin("put-config", address, &name, stored.as_ref().map(drop));
    stored.map(Json)
}

async fn delete_config(
    State(api): Shared,
    Administrator { address }: Administrator,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    let deleted = api.configs.delete(&name).await.map_err(ApiError::from);
    audit::admin("delete-config", address, &name, deleted.as_ref().copied());
    deleted?;
    let message = format!("config {name:?} deleted");
    Ok(Json(Deleted { message }))
}
