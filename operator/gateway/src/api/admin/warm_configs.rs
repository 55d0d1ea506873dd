//! `PUT` and `DELETE /api/admin/warm-runtime-configs/{name}`: changes stored warm runtime configs.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::Administrator;
use crate::api::audit;
use crate::api::body::Body;
use crate::api::endpoint::{Access, Endpoint, Tag};
use crate::api::{ApiError, Shared};
use crate::warm_configs::{ConfigRequest, WarmConfig};

const PATH: &str = "/api/admin/warm-runtime-configs/{*name}";

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigDeleted")]
struct Deleted {
    message: String,
}

pub(super) fn put_endpoint() -> Endpoint {
    Endpoint::put(PATH, put)
        .documented(
            Tag::Administration,
            "putWarmConfig",
            "Stores a warm runtime config as a SandboxPool.",
        )
        .access(Access::Admin)
        .request_body::<ConfigRequest>()
        .example(r#"{"image": "ghcr.io/openhands/agent-server:latest-python", "count": 2}"#)
        .response::<WarmConfig>(200)
        .errors(&[400, 401, 403, 503])
}

pub(super) fn delete_endpoint() -> Endpoint {
    Endpoint::delete(PATH, delete)
        .documented(
            Tag::Administration,
            "deleteWarmConfig",
            "Removes a stored warm runtime config.",
        )
        .access(Access::Admin)
        .response::<Deleted>(200)
        .errors(&[401, 403, 404, 503])
}

async fn put(
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

async fn delete(
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
