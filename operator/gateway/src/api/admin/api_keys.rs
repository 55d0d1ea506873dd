//! `GET /api/admin/api-keys`: tenants and their limits. Only hashes of keys are stored, so
//! `key_value` is empty.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Administrator;
use crate::api::endpoint::{Access, Endpoint, Tag};
use crate::api::{ApiError, Shared};

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

pub(super) fn endpoint() -> Endpoint {
    Endpoint::get("/api/admin/api-keys", keys)
        .documented(
            Tag::Administration,
            "listApiKeys",
            "Lists the names and limits of API keys.",
        )
        .access(Access::Admin)
        .response::<Vec<ApiKeyEntry>>(200)
        .errors(&[401, 403])
}

async fn keys(State(api): Shared, _: Administrator) -> Result<Json<Vec<ApiKeyEntry>>, ApiError> {
    let all = api.tenants.all();
    let answers = all.iter().map(|tenant| ApiKeyEntry {
        id: tenant.name.clone(),
        name: tenant.name.clone(),
        key_value: "",
        max_runtimes: tenant.limits.sandboxes,
        remaining_credits: None,
    });
    Ok(Json(answers.collect()))
}
