//! What one tenant uses, and who of it waits. A queue, not a scramble: who is first in it is next,
//! even if a smaller sandbox behind it would fit now, or a large one would wait for ever.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::controller::facts::Turn;
use crate::index::Key;
use crate::tenants::Limits;

/// Compute in whole parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compute {
    /// Thousandths of a core.
    pub(super) cpu: u64,
    /// Bytes.
    pub(super) memory: u64,
}

/// One tenant.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) limits: Limits,
    holders: HashMap<Key, Compute>,
    used: Compute,
    /// Oldest first.
    waiting: BTreeSet<(Option<Timestamp>, Key)>,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            limits: Limits::NONE,
            holders: HashMap::new(),
            used: Compute::default(),
            waiting: BTreeSet::new(),
        }
    }
}

impl Account {
    pub(super) fn holds(&self, key: &Key) -> bool {
        self.holders.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }

    /// Who is next.
    pub(super) fn head(&self) -> Option<&Key> {
        self.waiting.first().map(|(_, key)| key)
    }

    pub(super) fn wait(&mut self, made: Option<Timestamp>, key: &Key) {
        self.waiting.insert((made, key.clone()));
    }

    /// Takes in who has compute, whatever the limits say.
    pub(super) fn hold(&mut self, key: &Key, compute: Compute) {
        self.release(key);
        self.holders.insert(key.clone(), compute);
        self.used.cpu = self.used.cpu.saturating_add(compute.cpu);
        self.used.memory = self.used.memory.saturating_add(compute.memory);
    }

    pub(super) fn release(&mut self, key: &Key) {
        self.waiting.retain(|(_, waiting)| waiting != key);
        if let Some(compute) = self.holders.remove(key) {
            self.used.cpu = self.used.cpu.saturating_sub(compute.cpu);
            self.used.memory = self.used.memory.saturating_sub(compute.memory);
        }
    }

    /// Gives compute to a sandbox that has none, if it is its turn.
    pub(super) fn ask(&mut self, made: Option<Timestamp>, key: &Key, compute: Compute) -> Turn {
        if let Some(limit) = self.limit(Compute::default(), 0, compute) {
            self.release(key);
            return Turn::Never(format!("the sandbox needs more than {limit}"));
        }
        self.wait(made, key);
        let limit = self.limit(self.used, self.holders.len(), compute);
        match limit {
            None if self.head() == Some(key) => {
                self.hold(key, compute);
                Turn::Has
            }
            None => Turn::Waits("waits for sandboxes of its API key that came before it".into()),
            Some(limit) => Turn::Waits(format!("waits for its turn: {limit}")),
        }
    }

    /// The limit that one more sandbox would break.
    fn limit(&self, used: Compute, count: usize, more: Compute) -> Option<String> {
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
            return Some(format!("its API key may run {most} sandboxes at a time"));
        }
        if let Some(most) = over(cpu, used.cpu, more.cpu) {
            return Some(format!("its API key may use {most}m CPU at a time"));
        }
        let most = over(memory, used.memory, more.memory)?;
        let mebibytes = most >> 20;
        Some(format!(
            "its API key may use {mebibytes}Mi of memory at a time"
        ))
    }
}
