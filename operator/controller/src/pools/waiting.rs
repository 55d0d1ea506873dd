//! Sandboxes that wait for a warm Pod, by pool. Tenants take turns, so that one with many sandboxes
//! does not make the others wait for all of them; among those of one tenant the oldest comes first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::sandbox_memory::PerSandbox;
use shared::index::{Entry, Key};
use shared::kubernetes::work_queue::WorkQueue;

/// Order of a sandbox among those of its tenant.
type Age = (Option<Timestamp>, Key);

#[derive(Debug)]
pub(crate) struct WaitingSandboxes {
    by_pool: Mutex<HashMap<Key, Turns>>,
    pool_queue: Arc<WorkQueue<Key>>,
}

/// Sandboxes that wait for one pool. Each turn gives one Pod to each tenant.
#[derive(Debug, Default)]
struct Turns {
    /// A tenant that joins has this turn: one that was served before waits for the others.
    current: u64,
    tenants: HashMap<String, Tenant>,
}

#[derive(Debug)]
struct Tenant {
    /// Turn of its oldest sandbox; the next ones follow one turn each.
    turn: u64,
    waiting: BTreeSet<Age>,
}

impl Turns {
    fn join(&mut self, sandbox: &Entry) {
        let turn = self.current;
        let tenant = self.tenants.entry(tenant_of(sandbox)).or_insert(Tenant {
            turn,
            waiting: BTreeSet::new(),
        });
        tenant.waiting.insert(age(sandbox));
    }

    /// Returns whether the sandbox was waiting.
    fn leave(&mut self, sandbox: &Key) -> bool {
        let mut has_left = false;
        self.tenants.retain(|_, tenant| {
            let found = tenant.waiting.iter().position(|(_, key)| key == sandbox);
            has_left |= found.is_some();
            tenant.waiting.retain(|(_, key)| key != sandbox);
            let is_empty = tenant.waiting.is_empty();
            if found == Some(0) {
                let last = tenant.turn;
                tenant.turn += 1;
                self.current = self.current.max(if is_empty { tenant.turn } else { last });
            }
            !is_empty
        });
        has_left
    }

    fn holds(&self, sandbox: &Entry) -> bool {
        let tenant = self.tenants.get(&tenant_of(sandbox));
        tenant.is_some_and(|tenant| tenant.waiting.contains(&age(sandbox)))
    }

    /// The first sandboxes, in order.
    fn first(&self, count: usize) -> Vec<Key> {
        let places = self.tenants.values().flat_map(|tenant| {
            let waiting = tenant.waiting.iter().take(count);
            (tenant.turn..).zip(waiting)
        });
        let mut places: Vec<_> = places.collect();
        places.sort();
        let first = places.into_iter().take(count);
        first.map(|(_, (_, key))| key.clone()).collect()
    }

    /// Number of sandboxes that come before this one. One that does not wait would be the next of
    /// its tenant by age.
    fn ahead_of(&self, sandbox: &Entry) -> usize {
        let (name, age) = (tenant_of(sandbox), age(sandbox));
        let own = self.tenants.get(&name);
        let older = own.map_or(0, |own| own.waiting.range(..&age).count());
        let turn = own.map_or(self.current, |own| own.turn) + older as u64;
        let others = self.tenants.iter().filter(|(other, _)| **other != name);
        let before = others.map(|(_, other)| {
            let waiting = (other.turn..=turn).zip(&other.waiting);
            let earlier = |(at, place): &(u64, &Age)| (*at, *place) < (turn, &age);
            waiting.take_while(earlier).count()
        });
        older + before.sum::<usize>()
    }
}

impl WaitingSandboxes {
    pub(crate) fn new(pool_queue: Arc<WorkQueue<Key>>) -> Self {
        Self {
            by_pool: Mutex::default(),
            pool_queue,
        }
    }

    /// Makes a sandbox wait for a Pod of this pool, and of no other.
    pub(crate) fn join(&self, pool: &Key, sandbox: &Entry) {
        let is_waiting = {
            let pools = self.by_pool.lock();
            pools.get(pool).is_some_and(|turns| turns.holds(sandbox))
        };
        if !is_waiting {
            self.forget(&sandbox.key);
            let mut pools = self.by_pool.lock();
            pools.entry(pool.clone()).or_default().join(sandbox);
        }
    }

    /// Number of sandboxes that come before this one.
    pub(crate) fn ahead_of(&self, pool: &Key, sandbox: &Entry) -> usize {
        let pools = self.by_pool.lock();
        pools.get(pool).map_or(0, |turns| turns.ahead_of(sandbox))
    }

    /// The sandboxes that come first.
    pub(crate) fn first(&self, pool: &Key, count: usize) -> Vec<Key> {
        let pools = self.by_pool.lock();
        let turns = pools.get(pool);
        turns.map_or_else(Vec::new, |turns| turns.first(count))
    }
}

impl PerSandbox for WaitingSandboxes {
    /// Takes a sandbox out of its place. The next one there is woken.
    fn forget(&self, sandbox: &Key) {
        self.by_pool.lock().retain(|pool, turns| {
            let has_left = turns.leave(sandbox);
            let is_empty = turns.tenants.is_empty();
            if has_left && !is_empty {
                self.pool_queue.add(pool.clone());
            }
            !is_empty
        });
    }
}

/// API key of a session; other sandboxes belong to their namespace.
fn tenant_of(sandbox: &Entry) -> String {
    let session = sandbox.session();
    session.map_or_else(
        || format!("namespace {}", sandbox.key.namespace),
        |session| session.tenant.clone(),
    )
}

fn age(sandbox: &Entry) -> Age {
    (sandbox.created_at, sandbox.key.clone())
}

#[cfg(test)]
mod tests {
    use crds::sandbox::SandboxSpec;

    use super::*;
    use crate::tests::{entry, key};

    /// Sandbox of a tenant, `a1` for the first one of `a`. Higher numbers are younger.
    fn sandbox(name: &str) -> Entry {
        let (tenant, number) = name.split_at(1);
        let second = 10 + number.parse::<i64>().unwrap();
        let mut entry = entry(SandboxSpec::default());
        entry.key.namespace = tenant.to_owned();
        entry.key.name = name.to_owned();
        entry.created_at = Timestamp::from_second(second).ok();
        entry
    }

    fn names(keys: &[Key]) -> Vec<&str> {
        keys.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn tenants_take_turns() {
        let waiting = WaitingSandboxes::new(Arc::default());
        let pool = key("p");
        for name in ["a3", "a1", "a2", "b4", "a5", "c6", "b7"] {
            waiting.join(&pool, &sandbox(name));
            waiting.join(&pool, &sandbox(name));
        }
        let order = ["a1", "b4", "c6", "a2", "b7", "a3", "a5"];
        assert_eq!(names(&waiting.first(&pool, 9)), order);
        for (place, name) in order.iter().enumerate() {
            assert_eq!(waiting.ahead_of(&pool, &sandbox(name)), place, "{name}");
        }
        assert_eq!(waiting.ahead_of(&pool, &sandbox("d8")), 3);
        assert_eq!(names(&waiting.first(&pool, 2)), ["a1", "b4"]);
    }

    #[test]
    fn tenant_that_comes_again_and_again_does_not_starve_the_others() {
        let waiting = WaitingSandboxes::new(Arc::default());
        let pool = key("p");
        for number in 0..4 {
            waiting.join(&pool, &sandbox(&format!("a{number}")));
        }
        let mut latest = 10;
        waiting.join(&pool, &sandbox("b10"));
        let mut served = Vec::new();
        for _ in 0..6 {
            let first = waiting.first(&pool, 1).remove(0);
            waiting.forget(&first);
            if first.name.starts_with('b') {
                latest += 1;
                waiting.join(&pool, &sandbox(&format!("b{latest}")));
            }
            served.push(first);
        }
        assert_eq!(names(&served), ["a0", "b10", "a1", "b11", "a2", "b12"]);
    }
}
