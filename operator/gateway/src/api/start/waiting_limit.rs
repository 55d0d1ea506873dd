//! Limits the starts of a tenant that wait for quota. The controller admits queued starts in order;
//! `/start` rejects those beyond the limit (`docs/specs/runtime-api.md`, section 7, rule 27).

use crds::conditions::Reason;
use crds::sandbox::DesiredState;

use crate::api::{Api, ApiError};
use shared::index::Entry;
use shared::tenants::{Limits, Tenant};

impl Api {
    /// Rejects a new sandbox if too many of the tenant wait for quota.
    pub(super) fn check_waiting_limit(&self, tenant: &Tenant) -> Result<(), ApiError> {
        let Limits {
            sandboxes,
            cpu,
            memory,
            waiting,
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
}

/// Returns whether the sandbox runs or is to run.
fn is_live(entry: &Entry) -> bool {
    use crds::sandbox::Phase::{Failed, Stopped};
    let over = matches!(entry.status.phase, Failed | Stopped);
    entry.desired_state() == DesiredState::Running && !over && !entry.deleting
}

fn is_waiting_for_quota(entry: &Entry) -> bool {
    entry.status.reason == Some(Reason::QuotaExceeded)
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
