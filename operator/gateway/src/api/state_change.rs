//! Shared parts of `/stop`, `/pause` and `/resume`: request body, ownership check, and the change
//! of the desired state.

use std::sync::Arc;

use crds::sandbox::DesiredState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::auth::RateLimitedCaller;
use super::info::RuntimeInfo;
use super::{Api, ApiError, audit};
use crate::runtime_status::is_stopped;
use crate::sandboxes::SandboxError;
use shared::index::Entry;
use shared::tenants::Tenant;

/// Example of a request body.
pub(super) const EXAMPLE: &str = r#"{"runtime_id": "abcdefghijklmnop"}"#;

/// Body of the three calls. V0 sends `null` if its start failed before it had an id.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StateChangeRequest {
    /// Id of the sandbox. Null has no effect, except that a resume fails.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    runtime_id: Value,
}

/// Response of `/stop` and `/pause`. Clients require an object and do not read it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum StateChangeResponse {
    Runtime(Box<RuntimeInfo>),
    Nothing { runtime_id: () },
}

impl StateChangeResponse {
    pub(super) fn new(info: Option<RuntimeInfo>) -> Self {
        info.map_or_else(Self::nothing, |info| Self::Runtime(Box::new(info)))
    }

    pub(super) fn nothing() -> Self {
        Self::Nothing { runtime_id: () }
    }
}

impl StateChangeRequest {
    /// Returns the id, or `None` if it is null or missing.
    pub(super) fn id(self) -> Result<Option<String>, ApiError> {
        match self.runtime_id {
            Value::Null => Ok(None),
            Value::String(id) => Ok(Some(id)),
            _ => Err(ApiError::bad_request("runtime_id must be a string")),
        }
    }
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
    pub(super) async fn change_owned(
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
