//! Starts of a tenant that has reached its limits are accepted and wait for their turn (the
//! controller lets them in, in order). This is the end of that queue: what would make it longer than
//! it may be is refused (runtime API spec 7.27).

use crds::conditions::Reason;
use crds::sandbox::DesiredState;

use crate::gateway::api::{Api, ApiError};
use crate::index::Entry;
use crate::tenants::{Limits, Tenant};

impl Api {
    /// Refuses a new sandbox if too many of the tenant's wait already.
    pub(super) fn check_queue(&self, tenant: &Tenant) -> Result<(), ApiError> {
        let Limits {
            sandboxes,
            cpu,
            memory,
            waiting,
        } = tenant.limits;
        if sandboxes.is_none() && cpu.is_none() && memory.is_none() {
            return Ok(());
        }
        let live = self.sandboxes.index.list(|entry| {
            entry.session().is_some_and(|s| s.tenant == tenant.name)
                && self.sandboxes.is_ours(entry)
                && is_live(entry)
        });
        // The controller has not yet spoken of the latest, so those over the count wait as well.
        let over = sandboxes.map_or(0, |most| live.len().saturating_sub(size(most)));
        let told = live.iter().filter(|entry| waits(entry)).count();
        if over.max(told) < size(waiting) {
            return Ok(());
        }
        Err(ApiError::QueueFull)
    }
}

/// Whether it runs or is to run.
fn is_live(entry: &Entry) -> bool {
    use crds::sandbox::Phase::{Failed, Stopped};
    let over = matches!(entry.status.phase, Failed | Stopped);
    entry.wanted() == DesiredState::Running && !over && !entry.deleting
}

fn waits(entry: &Entry) -> bool {
    entry.status.reason == Some(Reason::QuotaExceeded)
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
