//! `POST /stop`, `/pause` and `/resume`: change the desired state of a sandbox of the caller.
//!
//! Stopping or pausing a stopped sandbox or `null` succeeds: V0 clients raise an error of this call
//! in place of their real one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use crds::sandbox::DesiredState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::auth::RateLimitedCaller;
use super::body::Body;
use super::endpoint::{Endpoint, SANDBOXES};
use super::info::RuntimeInfo;
use super::{Api, ApiError, Shared, audit};
use crate::runtime_status::is_stopped;
use crate::sandboxes::SandboxError;
use shared::index::Entry;
use shared::tenants::Tenant;

const EXAMPLE: &str = r#"{"runtime_id": "abcdefghijklmnop"}"#;

pub(super) fn endpoints() -> [Endpoint; 3] {
    let endpoint = |path, route| {
        Endpoint::new(SANDBOXES, "POST", path, route)
            .request_body::<StateChangeRequest>(EXAMPLE)
            .response::<StateChangeResponse>(200)
            .errors(&[400, 401, 404, 503])
    };
    let end = |change| {
        post(move |api: Shared, caller: RateLimitedCaller, body| end(api, caller, body, change))
    };
    [
        endpoint("/stop", end(("stop", DesiredState::Stopped))).documented(
            "stopSandbox",
            "Stops a sandbox for good: deletes its Pod and workspace.",
        ),
        endpoint("/pause", end(("pause", DesiredState::Paused))).documented(
            "pauseSandbox",
            "Pauses a sandbox: deletes its Pod, keeps workspace, URL and key.",
        ),
        endpoint("/resume", post(resume))
            .documented("resumeSandbox", "Resumes a paused sandbox.")
            .response::<RuntimeInfo>(200),
    ]
}

/// Body of the three calls. V0 sends `null` if its start failed before it had an id.
#[derive(Debug, Deserialize, JsonSchema)]
struct StateChangeRequest {
    /// Id of the sandbox. Null has no effect, except that a resume fails.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    runtime_id: Value,
}

/// Response of `/stop` and `/pause`. Clients require an object and do not read it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum StateChangeResponse {
    Runtime(Box<RuntimeInfo>),
    Nothing { runtime_id: () },
}

impl StateChangeRequest {
    /// Returns the id, or `None` if it is null or missing.
    fn id(self) -> Result<Option<String>, ApiError> {
        match self.runtime_id {
            Value::Null => Ok(None),
            Value::String(id) => Ok(Some(id)),
            _ => Err(ApiError::bad_request("runtime_id must be a string")),
        }
    }
}

async fn end(
    api: Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StateChangeRequest>,
    (action, state): (&'static str, DesiredState),
) -> Result<Json<StateChangeResponse>, ApiError> {
    let info = match request.id()? {
        Some(id) => {
            let entry = api.change_owned(action, &caller, &id, state).await?;
            api.info(&entry)
        }
        None => None,
    };
    let nothing = StateChangeResponse::Nothing { runtime_id: () };
    let runtime = |info| StateChangeResponse::Runtime(Box::new(info));
    Ok(Json(info.map_or(nothing, runtime)))
}

/// The response includes the session key, because some clients read it here.
async fn resume(
    State(api): Shared,
    caller: RateLimitedCaller,
    Body(request): Body<StateChangeRequest>,
) -> Result<Json<RuntimeInfo>, ApiError> {
    let id = request.id()?;
    let id = id.ok_or_else(|| ApiError::bad_request("runtime_id is required"))?;
    let changed = api.change_owned("resume", &caller, &id, DesiredState::Running);
    let entry = changed.await?;
    let live = (!is_stopped(&entry)).then_some(entry);
    let info = live.and_then(|entry| api.info(&entry));
    info.map(Json).ok_or(ApiError::UnknownRuntime)
}

impl Api {
    /// Finds a sandbox of the tenant by id; one of another tenant is unknown.
    pub(super) async fn find_owned(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Arc<Entry>, ApiError> {
        let found = self.sandboxes.find(id).await;
        let entry = found.map_err(|error| match error {
            SandboxError::NotFound => ApiError::UnknownRuntime,
            other => other.into(),
        })?;
        let session = entry.session();
        let owned = session.is_some_and(|s| s.tenant == tenant.name);
        if owned && self.sandboxes.is_in_api_namespace(&entry) {
            Ok(entry)
        } else {
            Err(ApiError::UnknownRuntime)
        }
    }

    /// Changes the desired state of a tenant's sandbox, with an audit line.
    async fn change_owned(
        &self,
        action: &'static str,
        caller: &RateLimitedCaller,
        id: &str,
        state: DesiredState,
    ) -> Result<Arc<Entry>, ApiError> {
        let tenant = &caller.tenant;
        let changed = async {
            let entry = self.find_owned(tenant, id).await?;
            self.change(entry, state).await
        };
        let changed = timeout(caller.remaining_time(), changed).await;
        let changed = changed.unwrap_or(Err(SandboxError::Timeout.into()));
        audit::tenant(action, caller, id, changed.as_ref().map(drop));
        changed
    }

    /// Changes the desired state of a sandbox and returns the new entry. A stopped sandbox does not
    /// change. While the API server is away, a change that was already requested succeeds.
    pub(super) async fn change(
        &self,
        entry: Arc<Entry>,
        state: DesiredState,
    ) -> Result<Arc<Entry>, ApiError> {
        if is_stopped(&entry) {
            return Ok(entry);
        }
        match self.sandboxes.set_state(&entry, state).await {
            Ok(changed) => {
                if let Some(session) = changed.session().filter(|_| state == DesiredState::Stopped)
                {
                    self.limit_tombstones(&session.tenant).await;
                }
                Ok(changed)
            }
            // Another writer may have stopped or deleted it, and the index lags behind.
            Err(error @ (SandboxError::Refused(_) | SandboxError::NotFound)) => {
                let found = self.sandboxes.look_up(&entry.key.name).await?;
                let found = found.ok_or(ApiError::UnknownRuntime)?;
                if is_stopped(&found) {
                    Ok(found)
                } else {
                    Err(error.into())
                }
            }
            Err(error) if error.is_outage() && is_already_requested(&entry, state) => Ok(entry),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns whether the spec has this state and neither an automatic pause nor a failure overrides it.
fn is_already_requested(entry: &Entry, state: DesiredState) -> bool {
    let overridden = entry.automatic_pause().is_some() || entry.has_failed_with_workspace();
    entry.spec.state == state && !overridden
}
