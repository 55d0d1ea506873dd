//! `GET /api/admin/api-keys`: whose keys there are. The keys themselves are not known to anybody
//! but their owners, so `key_value` is empty.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Administrator;
use crate::gateway::api::endpoint::{Access, Endpoint};
use crate::gateway::api::{ApiError, Shared};

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ApiKey")]
struct Answer {
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
        .says("Names and limits of API keys.")
        .open_to(Access::Admin)
        .answers::<Vec<Answer>>(200)
        .fails(&[401, 403])
}

async fn keys(State(api): Shared, _: Administrator) -> Result<Json<Vec<Answer>>, ApiError> {
    let all = api.tenants.all();
    let answers = all.iter().map(|tenant| Answer {
        id: tenant.name.clone(),
        name: tenant.name.clone(),
        key_value: "",
        max_runtimes: tenant.limits.sandboxes,
        remaining_credits: None,
    });
    Ok(Json(answers.collect()))
}
