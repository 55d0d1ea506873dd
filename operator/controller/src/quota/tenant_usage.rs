//! Usage and queue of one tenant. The queue is strict: a smaller sandbox does not overtake, or a
//! large one could wait forever.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::facts::QuotaDecision;
use shared::index::Key;
use shared::tenants::Limits;

/// CPU and memory in whole units.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compute {
    /// Millicores.
    pub(super) cpu: u64,
    /// Bytes.
    pub(super) memory: u64,
}

/// Usage of one tenant.
#[derive(Debug, Default)]
pub(super) struct TenantUsage {
    pub(super) limits: Limits,
    admitted: HashMap<Key, Compute>,
    used: Compute,
    /// Queued sandboxes, oldest first.
    waiting: BTreeSet<(Option<Timestamp>, Key)>,
}

impl TenantUsage {
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.admitted.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.waiting.is_empty()
    }

    /// First queued sandbox.
    pub(super) fn head(&self) -> Option<&Key> {
        self.waiting.first().map(|(_, key)| key)
    }

    pub(super) fn enqueue(&mut self, created_at: Option<Timestamp>, key: &Key) {
        self.waiting.insert((created_at, key.clone()));
    }

    /// Counts a sandbox as admitted, even above the limits.
    pub(super) fn charge(&mut self, key: &Key, compute: Compute) {
        self.release(key);
        self.admitted.insert(key.clone(), compute);
        self.used.cpu = self.used.cpu.saturating_add(compute.cpu);
        self.used.memory = self.used.memory.saturating_add(compute.memory);
    }

    pub(super) fn release(&mut self, key: &Key) {
        self.waiting.retain(|(_, waiting)| waiting != key);
        if let Some(compute) = self.admitted.remove(key) {
            self.used.cpu = self.used.cpu.saturating_sub(compute.cpu);
            self.used.memory = self.used.memory.saturating_sub(compute.memory);
        }
    }

    /// Admits a sandbox if it is the first in the queue and fits.
    pub(super) fn request(
        &mut self,
        created_at: Option<Timestamp>,
        key: &Key,
        compute: Compute,
    ) -> QuotaDecision {
        if let Some(limit) = self.exceeded_limit(Compute::default(), 0, compute) {
            self.release(key);
            return QuotaDecision::Exceeded(format!(
                "the sandbox requests more than the API key allows: {limit}"
            ));
        }
        self.enqueue(created_at, key);
        let limit = self.exceeded_limit(self.used, self.admitted.len(), compute);
        match limit {
            None if self.head() == Some(key) => {
                self.charge(key, compute);
                QuotaDecision::Admitted
            }
            None => QuotaDecision::Queued(
                "waiting for quota: older sandboxes of the API key come first".into(),
            ),
            Some(limit) => {
                QuotaDecision::Queued(format!("waiting for quota: the API key allows {limit}"))
            }
        }
    }

    /// Describes the limit that one more sandbox would exceed.
    fn exceeded_limit(&self, used: Compute, count: usize, more: Compute) -> Option<String> {
        let Limits {
            sandboxes,
            cpu,
            memory,
            ..
        } = self.limits;
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let over = |limit: Option<u64>, used: u64, more: u64| {
            limit.filter(|limit| used.saturating_add(more) > *limit)
        };
        if let Some(most) = over(sandboxes.map(u64::from), count, 1) {
            return Some(format!("at most {most} running sandboxes"));
        }
        if let Some(most) = over(cpu, used.cpu, more.cpu) {
            return Some(format!("at most {most}m CPU"));
        }
        let most = over(memory, used.memory, more.memory)?;
        let mebibytes = most >> 20;
        Some(format!("at most {mebibytes}Mi memory"))
    }
}
