//! What `/stop`, `/pause` and `/resume` share: the body, whose runtime it is, and the change of
//! the desired state.

use std::sync::Arc;

use crds::sandbox::DesiredState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::auth::Turn;
use super::info::{Lifecycle, RuntimeInfo, derive};
use super::{Api, ApiError, audit};
use crate::gateway::sandboxes::SandboxError;
use crate::index::Entry;
use crate::tenants::Tenant;

/// Body of the three calls. V0 sends `null` when its start failed before it knew an id.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct StateRequest {
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    runtime_id: Value,
}

/// Answer of `/stop` and `/pause`: no client reads it, but it has to be an object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum StateAnswer {
    Runtime(Box<RuntimeInfo>),
    Nothing { runtime_id: () },
}

impl StateAnswer {
    pub(super) fn of(info: Option<RuntimeInfo>) -> Self {
        info.map_or_else(Self::nothing, |info| Self::Runtime(Box::new(info)))
    }

    pub(super) fn nothing() -> Self {
        Self::Nothing { runtime_id: () }
    }
}

impl StateRequest {
    /// The id, or `None` for null and missing ones.
    pub(super) fn id(self) -> Result<Option<String>, ApiError> {
        match self.runtime_id {
            Value::Null => Ok(None),
            Value::String(id) => Ok(Some(id)),
            _ => Err(ApiError::bad("runtime_id must be a string")),
        }
    }
}

impl Api {
    /// The tenant's sandbox of this id; for everybody else there is none.
    pub(super) async fn owned(&self, tenant: &Tenant, id: &str) -> Result<Arc<Entry>, ApiError> {
        let found = self.sandboxes.find(id).await;
        let entry = found.map_err(|error| match error {
            SandboxError::NotFound => ApiError::UnknownRuntime,
            other => other.into(),
        })?;
        let session = entry.session();
        let owned = session.is_some_and(|s| s.tenant == tenant.name);
        if owned && self.sandboxes.is_ours(&entry) {
            Ok(entry)
        } else {
            Err(ApiError::UnknownRuntime)
        }
    }

    /// Changes what a tenant's sandbox should be, and notes who did it.
    pub(super) async fn change_owned(
        &self,
        action: &'static str,
        turn: &Turn,
        id: &str,
        state: DesiredState,
    ) -> Result<Arc<Entry>, ApiError> {
        let tenant = &turn.tenant;
        let changed = async {
            let entry = self.owned(tenant, id).await?;
            self.change(entry, state).await
        };
        let changed = timeout(turn.left(), changed).await;
        let changed = changed.unwrap_or(Err(SandboxError::Timeout.into()));
        audit::tenant(action, &tenant.name, id, changed.as_ref().map(drop));
        changed
    }

    /// Changes what a sandbox should be, and returns it as it is then. A stopped one stays as it is,
    /// and while the API server is away so does one that is known to be as it should.
    pub(super) async fn change(
        &self,
        entry: Arc<Entry>,
        state: DesiredState,
    ) -> Result<Arc<Entry>, ApiError> {
        if is_stopped(&entry) {
            return Ok(entry);
        }
        match self.sandboxes.set_state(&entry, state).await {
            Ok(changed) => Ok(changed),
            // Somebody else stopped or deleted it, and the index does not know yet.
            Err(error @ (SandboxError::Refused(_) | SandboxError::NotFound)) => {
                let now = self.sandboxes.look_up(&entry.key.name).await?;
                let now = now.ok_or(ApiError::UnknownRuntime)?;
                if is_stopped(&now) {
                    Ok(now)
                } else {
                    Err(error.into())
                }
            }
            Err(error) if error.is_outage() && is_already(&entry, state) => Ok(entry),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether the user has asked for this before, and nothing has come of it that a change would end.
fn is_already(entry: &Entry, state: DesiredState) -> bool {
    entry.spec.state == state && entry.own_pause().is_none()
}

/// Whether it is only a tombstone.
pub(super) fn is_stopped(entry: &Entry) -> bool {
    derive(entry).lifecycle == Lifecycle::Stopped
}
