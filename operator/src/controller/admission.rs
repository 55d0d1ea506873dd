//! Whose turn it is: a sandbox of the runtime API gets compute when its tenant's limits have room
//! for it, in the order in which the sandboxes were made; until then it waits.
//!
//! Only the acting controller decides, so the limits hold across any number of gateways without a
//! lock. Nothing is stored: who has a Pod has had its turn (decision 022).

mod account;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crds::conditions::Reason;
use crds::sandbox::{DesiredState, Phase};
use parking_lot::Mutex;

use super::build::resources;
use super::config::Defaults;
use super::facts::Turn;
use crate::index::{Entry, Key};
use crate::kubernetes::queue::Queue;
use crate::quantity;
use crate::tenants::Tenants;
use account::{Account, Compute};

/// Turns of all tenants.
#[derive(Debug)]
pub(crate) struct Admission {
    tenants: Tenants,
    queue: Arc<Queue<Key>>,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    accounts: HashMap<String, Account>,
    /// Tenant of every sandbox that is in an account.
    owners: HashMap<Key, String>,
}

impl Admission {
    pub(crate) fn new(tenants: Tenants, queue: Arc<Queue<Key>>) -> Self {
        Self {
            tenants,
            queue,
            ledger: Mutex::default(),
        }
    }

    /// Begins with what there is: sandboxes whose spec has what their pool supplies, and whether
    /// each has a Pod.
    pub(crate) fn restore<'a>(
        &self,
        sandboxes: impl IntoIterator<Item = (&'a Entry, bool)>,
        defaults: &Defaults,
    ) {
        let mut ledger = Ledger::default();
        for (entry, has_pod) in sandboxes {
            let Some(tenant) = entry.session().map(|s| s.tenant.clone()) else {
                continue;
            };
            let wants = wants(entry);
            let queued = wants && entry.status.reason == Some(Reason::QuotaExceeded);
            let holds = has_pod || (wants && entry.status.pod_name.is_some());
            if !holds && !queued {
                continue;
            }
            let account = self.account(&mut ledger, &tenant);
            if holds {
                account.hold(&entry.key, compute(entry, defaults));
            } else {
                account.wait(entry.created_at, &entry.key);
            }
            ledger.owners.insert(entry.key.clone(), tenant);
        }
        *self.ledger.lock() = ledger;
    }

    /// Whether a sandbox may have a Pod. Having been told so once, it may until it is at rest.
    pub(crate) fn ask(&self, entry: &Entry, has_pod: bool, defaults: &Defaults) -> Turn {
        let Some(session) = entry.session() else {
            return Turn::Has;
        };
        let (key, wants) = (&entry.key, wants(entry));
        if !wants && !has_pod {
            self.forget(key);
            return Turn::Has;
        }
        let mut ledger = self.ledger.lock();
        let owner = ledger.owners.insert(key.clone(), session.tenant.clone());
        debug_assert!(owner.is_none_or(|owner| owner == session.tenant));
        let account = self.account(&mut ledger, &session.tenant);
        if account.holds(key) {
            return Turn::Has;
        }
        let compute = compute(entry, defaults);
        if has_pod {
            account.hold(key, compute);
            return Turn::Has;
        }
        let turn = account.ask(entry.created_at, key, compute);
        let next = account.head().filter(|_| turn == Turn::Has).cloned();
        drop(ledger);
        self.call(next);
        turn
    }

    /// A sandbox is at rest or gone: what it had is free for the next one.
    pub(crate) fn forget(&self, key: &Key) {
        let mut ledger = self.ledger.lock();
        let Some(tenant) = ledger.owners.remove(key) else {
            return;
        };
        let Some(account) = ledger.accounts.get_mut(&tenant) else {
            return;
        };
        account.release(key);
        let next = account.head().cloned();
        if account.is_empty() {
            ledger.accounts.remove(&tenant);
        }
        drop(ledger);
        self.call(next);
    }

    /// The limits may have changed: has the first in every queue looked at again.
    pub(crate) fn call_all(&self) {
        let ledger = self.ledger.lock();
        let heads: Vec<_> = ledger.accounts.values().filter_map(Account::head).collect();
        let heads: Vec<_> = heads.into_iter().cloned().collect();
        drop(ledger);
        for head in heads {
            self.call(Some(head));
        }
    }

    fn call(&self, next: Option<Key>) {
        if let Some(next) = next {
            self.queue.add(next);
        }
    }

    /// The account, with the limits that hold now. A tenant without a key keeps its last ones.
    fn account<'a>(&self, ledger: &'a mut Ledger, tenant: &str) -> &'a mut Account {
        let account = ledger.accounts.entry(tenant.to_owned()).or_default();
        if let Some(tenant) = self.tenants.named(tenant) {
            account.limits = tenant.limits;
        }
        account
    }
}

/// Whether a sandbox wants compute.
fn wants(entry: &Entry) -> bool {
    let failed = entry.status.phase == Phase::Failed && entry.is_observed();
    entry.wanted() == DesiredState::Running && !entry.deleting && !failed
}

/// What a sandbox may use at most.
fn compute(entry: &Entry, defaults: &Defaults) -> Compute {
    // What cannot be built is refused later, with its reason.
    let limits = resources::requirements(&entry.spec, defaults).ok();
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
