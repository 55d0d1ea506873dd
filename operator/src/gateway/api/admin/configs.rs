//! `PUT` and `DELETE /api/admin/warm-runtime-configs/{name}`: stored warm runtime configs.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::Administrator;
use crate::gateway::api::audit;
use crate::gateway::api::body::Body;
use crate::gateway::api::endpoint::{Access, Endpoint};
use crate::gateway::api::{ApiError, Shared};
use crate::gateway::configs::{ConfigRequest, WarmConfig};

const PATH: &str = "/api/admin/warm-runtime-configs/{*name}";

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigDeleted")]
struct Deleted {
    message: String,
}

pub(super) fn put_endpoint() -> Endpoint {
    Endpoint::put(PATH, put)
        .says("Stores a warm runtime config as a SandboxPool.")
        .open_to(Access::Admin)
        .takes::<ConfigRequest>()
        .answers::<WarmConfig>(200)
        .fails(&[400, 401, 403, 503])
}

pub(super) fn delete_endpoint() -> Endpoint {
    Endpoint::delete(PATH, delete)
        .says("Removes a stored warm runtime config.")
        .open_to(Access::Admin)
        .answers::<Deleted>(200)
        .fails(&[401, 403, 404, 503])
}

async fn put(
    State(api): Shared,
    _: Administrator,
    name: Result<Path<String>, PathRejection>,
    Body(request): Body<ConfigRequest>,
) -> Result<Json<WarmConfig>, ApiError> {
    let Path(name) = name?;
    let stored = api.configs.put(&name, request).await?;
    audit::admin("put-config", &name);
    Ok(Json(stored))
}

async fn delete(
    State(api): Shared,
    _: Administrator,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Deleted>, ApiError> {
    let Path(name) = name?;
    api.configs.delete(&name).await?;
    audit::admin("delete-config", &name);
    let message = format!("config {name:?} deleted");
    Ok(Json(Deleted { message }))
}
