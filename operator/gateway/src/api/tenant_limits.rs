//! Limits of a tenant's sandboxes that the gateway keeps.
//!
//! The controller admits queued starts in order; `/start` rejects those beyond a limit
//! (`docs/specs/runtime-api.md`, section 7, rules 27 and 41). Every replica keeps all sandboxes in
//! memory, so paused ones are limited too. Tombstones are limited so that start and stop cycles do
//! not fill the API server. The oldest go first; a session whose last tombstone is gone is unknown.

use std::sync::Arc;
use std::time::Duration;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase, SandboxSpec};
use jiff::Timestamp;
use tokio::time::timeout;

use super::{Api, ApiError};
use crate::runtime_status::is_stopped;
use shared::index::{Entry, payload_bytes};
use shared::tenants::{Limits, Tenant};

/// Maximum bytes of commands and environments of all sandboxes of a tenant. Every replica keeps the
/// commands in memory, and the controller the environments too.
pub(super) const MAX_STORED_BYTES: usize = 128 << 20;
/// Maximum number of tombstones per tenant, about 1 KiB each.
const MAX_TOMBSTONES: usize = 200;
/// Tombstones expired per stop: more than one, so that a surplus shrinks.
const MAX_EXPIRED_PER_STOP: usize = 4;
/// Time that a stop spends on it.
const EXPIRY_TIMEOUT: Duration = Duration::from_secs(1);

impl Api {
    /// Rejects a new sandbox if too many of the tenant wait for quota.
    pub(super) fn check_waiting_limit(&self, tenant: &Tenant) -> Result<(), ApiError> {
        let Limits {
            sandboxes,
            cpu,
            memory,
            waiting,
            ..
        } = tenant.limits;
        if sandboxes.is_none() && cpu.is_none() && memory.is_none() {
            return Ok(());
        }
        let mut live = self.sandboxes.of_tenant(&tenant.name);
        live.retain(|entry| is_live(entry));
        // The controller may not have reconciled the latest: those over the count wait as well.
        let over = sandboxes.map_or(0, |most| live.len().saturating_sub(size(most)));
        let reported = live
            .iter()
            .filter(|entry| is_waiting_for_quota(entry))
            .count();
        if over.max(reported) < size(waiting) {
            return Ok(());
        }
        Err(ApiError::QueueFull)
    }

    /// Rejects a new sandbox if the tenant has too many in all states, or too large ones. Starts
    /// that are checked before others are in the index can exceed the limits by as many.
    pub(super) fn check_total_limits(
        &self,
        tenant: &Tenant,
        spec: &SandboxSpec,
    ) -> Result<(), ApiError> {
        let totals = self.sandboxes.index.tenant_totals(&tenant.name);
        check_stored_bytes(totals.payload_bytes, payload_bytes(spec))?;
        let max = tenant.limits.total_sandboxes;
        if totals.sandboxes < size(max) {
            return Ok(());
        }
        // Tombstones have a limit of their own.
        let mut existing = self.sandboxes.of_tenant(&tenant.name);
        existing.retain(|entry| !is_stopped(entry));
        if existing.len() < size(max) {
            return Ok(());
        }
        Err(ApiError::TooManySandboxes { max })
    }

    /// Expires the oldest tombstones of a tenant beyond the limit; the next stop repeats failures.
    pub(super) async fn limit_tombstones(&self, tenant: &str) {
        let surplus = surplus(self.sandboxes.of_tenant(tenant));
        let expire = async {
            for entry in &surplus {
                if let Err(error) = self.sandboxes.expire_tombstone(entry).await {
                    tracing::debug!(key = %entry.key, %error, "cannot expire a tombstone");
                }
            }
        };
        let _ = timeout(EXPIRY_TIMEOUT, expire).await;
    }
}

/// Checks that a tenant may store some bytes of commands and environments more.
fn check_stored_bytes(stored: usize, more: usize) -> Result<(), ApiError> {
    let max = MAX_STORED_BYTES;
    if stored.saturating_add(more) <= max {
        return Ok(());
    }
    Err(ApiError::LargeSandboxes { max })
}

/// Returns the oldest finished tombstones beyond the limit.
fn surplus(mut entries: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
    entries.retain(|entry| is_stopped(entry) && !entry.deleting && !has_deadline(entry));
    let count = entries.len().saturating_sub(MAX_TOMBSTONES);
    // Pod and workspace of the others are still being deleted.
    entries.retain(|entry| entry.status.phase == Phase::Stopped);
    entries.sort_by_key(|entry| stopped_at(entry));
    entries.truncate(count.min(MAX_EXPIRED_PER_STOP));
    entries
}

/// Returns whether the tombstone has a deadline of its own. This module sets that of sandboxes that
/// the API created; the template of a snapshot may have one too.
fn has_deadline(entry: &Entry) -> bool {
    let lifecycle = entry.spec.lifecycle.as_ref();
    lifecycle.is_some_and(|lifecycle| lifecycle.delete_stopped_after.is_some())
}

fn stopped_at(entry: &Entry) -> Option<Timestamp> {
    let stopped = entry.status.stopped_at.as_ref().map(|time| time.0);
    stopped.or(entry.created_at)
}

/// Returns whether the sandbox runs or is to run.
fn is_live(entry: &Entry) -> bool {
    let over = matches!(entry.status.phase, Phase::Failed | Phase::Stopped);
    entry.desired_state() == DesiredState::Running && !over && !entry.deleting
}

fn is_waiting_for_quota(entry: &Entry) -> bool {
    entry.status.reason == Some(Reason::QuotaExceeded)
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_environments_beyond_the_limit_are_rejected() {
        assert!(check_stored_bytes(0, MAX_STORED_BYTES).is_ok());
        assert!(check_stored_bytes(MAX_STORED_BYTES - 9, 9).is_ok());
        let error = check_stored_bytes(MAX_STORED_BYTES - 9, 10).unwrap_err();
        assert_eq!(error.kind().0, http::StatusCode::SERVICE_UNAVAILABLE);
        assert!(error.to_string().contains("128 MiB"), "{error}");
    }
}
