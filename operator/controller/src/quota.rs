//! Quota of API keys: a sandbox is admitted when the limits of its tenant have room for it, in
//! order of creation.
//!
//! Only the leader decides, so the limits hold across any number of gateways without a lock.
//! Nothing is stored: a sandbox with a Pod is admitted (`docs/decisions/022-api-key-quotas.md`).

mod tenant_usage;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use parking_lot::Mutex;

use crate::config::Defaults;
use crate::facts::QuotaDecision;
use crate::sandbox_memory::PerSandbox;
use shared::index::{Entry, Key};
use shared::kubernetes::work_queue::WorkQueue;
use shared::quantity;
use shared::resources;
use shared::tenants::Tenants;
use tenant_usage::{Compute, TenantUsage};

/// Quota usage and queues of all tenants.
#[derive(Debug)]
pub(crate) struct QuotaQueue {
    tenants: Tenants,
    queue: Arc<WorkQueue<Key>>,
    state: Mutex<QuotaState>,
}

#[derive(Debug, Default)]
struct QuotaState {
    usage_by_tenant: HashMap<String, TenantUsage>,
    /// Tenant of every sandbox that is admitted or queued.
    owners: HashMap<Key, String>,
}

impl QuotaQueue {
    pub(crate) fn new(tenants: Tenants, queue: Arc<WorkQueue<Key>>) -> Self {
        Self {
            tenants,
            queue,
            state: Mutex::default(),
        }
    }

    /// Restores the usage from all sandboxes, with their pool's values filled in, and whether each
    /// has a Pod.
    pub(crate) fn restore<'a>(
        &self,
        sandboxes: impl IntoIterator<Item = (&'a Entry, bool)>,
        defaults: &Defaults,
    ) {
        let mut state = QuotaState::default();
        for (entry, has_pod) in sandboxes {
            let Some(tenant) = entry.session().map(|s| s.tenant.clone()) else {
                continue;
            };
            let needs_compute = needs_compute(entry);
            let queued = needs_compute && entry.status.reason == Some(Reason::QuotaExceeded);
            let holds = has_pod || (needs_compute && entry.status.pod_name.is_some());
            if !holds && !queued {
                continue;
            }
            let usage = self.usage(&mut state, &tenant);
            if holds {
                usage.charge(&entry.key, compute(entry, defaults));
            } else {
                usage.enqueue(entry.created_at, &entry.key);
            }
            state.owners.insert(entry.key.clone(), tenant);
        }
        *self.state.lock() = state;
    }

    /// Decides whether a sandbox may have a Pod. An admitted sandbox stays admitted until it no
    /// longer needs compute.
    pub(crate) fn request(
        &self,
        entry: &Entry,
        has_pod: bool,
        defaults: &Defaults,
    ) -> QuotaDecision {
        let Some(session) = entry.session() else {
            return QuotaDecision::Admitted;
        };
        let (key, needs_compute) = (&entry.key, needs_compute(entry));
        if !needs_compute && !has_pod {
            self.forget(key);
            return QuotaDecision::Admitted;
        }
        let mut state = self.state.lock();
        let owner = state.owners.insert(key.clone(), session.tenant.clone());
        debug_assert!(owner.is_none_or(|owner| owner == session.tenant));
        let usage = self.usage(&mut state, &session.tenant);
        if usage.holds(key) {
            return QuotaDecision::Admitted;
        }
        let compute = compute(entry, defaults);
        if has_pod {
            usage.charge(key, compute);
            return QuotaDecision::Admitted;
        }
        let decision = usage.request(entry.created_at, key, compute);
        let next = usage
            .head()
            .filter(|_| decision == QuotaDecision::Admitted)
            .cloned();
        drop(state);
        self.requeue(next);
        decision
    }

    /// Requeues the first sandbox of each queue, because limits may have changed.
    pub(crate) fn requeue_heads(&self) {
        let state = self.state.lock();
        let heads: Vec<_> = state
            .usage_by_tenant
            .values()
            .filter_map(TenantUsage::head)
            .collect();
        let heads: Vec<_> = heads.into_iter().cloned().collect();
        drop(state);
        for head in heads {
            self.requeue(Some(head));
        }
    }

    fn requeue(&self, next: Option<Key>) {
        if let Some(next) = next {
            self.queue.add(next);
        }
    }

    /// Usage of a tenant with its current limits. A tenant whose key was deleted keeps its last
    /// limits.
    fn usage<'a>(&self, state: &'a mut QuotaState, tenant: &str) -> &'a mut TenantUsage {
        let usage = state.usage_by_tenant.entry(tenant.to_owned()).or_default();
        if let Some(tenant) = self.tenants.named(tenant) {
            usage.limits = tenant.limits;
        }
        usage
    }
}

impl PerSandbox for QuotaQueue {
    /// Releases the usage of a sandbox that needs no compute or was deleted, and requeues the next
    /// one.
    fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        let Some(tenant) = state.owners.remove(key) else {
            return;
        };
        let Some(usage) = state.usage_by_tenant.get_mut(&tenant) else {
            return;
        };
        usage.release(key);
        let next = usage.head().cloned();
        if usage.is_empty() {
            state.usage_by_tenant.remove(&tenant);
        }
        drop(state);
        self.requeue(next);
    }
}

/// Returns whether a sandbox needs compute.
fn needs_compute(entry: &Entry) -> bool {
    let failed = entry.status.phase == Phase::Failed && entry.is_observed();
    entry.desired_state() == DesiredState::Running && !entry.deleting && !failed
}

/// Resource limits of a sandbox.
fn compute(entry: &Entry, defaults: &Defaults) -> Compute {
    // An invalid spec is rejected later, with its reason.
    let limits = resources::requirements(&entry.spec, &defaults.resources).ok();
    let limits = limits.and_then(|all| all.limits).unwrap_or_default();
    let amount = |name: &str, parts| {
        let limit = limits.get(name);
        limit.and_then(|limit| quantity::whole(&limit.0, parts))
    };
    Compute {
        cpu: amount("cpu", 1000.0).unwrap_or(0),
        memory: amount("memory", 1.0).unwrap_or(0),
    }
}
