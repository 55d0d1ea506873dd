//! In-memory state about single Sandboxes. It has one owner, so that nothing about a deleted
//! Sandbox stays behind.

use std::sync::Arc;

use shared::index::Key;

/// State that a component keeps about each Sandbox.
pub(crate) trait PerSandbox: Send + Sync + 'static {
    /// Drops the state of a Sandbox.
    fn forget(&self, key: &Key);
}

/// Owner of all such state.
#[derive(Default)]
pub(crate) struct SandboxStates(Vec<Arc<dyn PerSandbox>>);

impl SandboxStates {
    /// Takes ownership of a component's state and returns a handle to it.
    pub(crate) fn own<T: PerSandbox>(&mut self, state: T) -> Arc<T> {
        let state = Arc::new(state);
        self.0.push(state.clone());
        state
    }

    /// Drops everything about a deleted Sandbox.
    pub(crate) fn forget(&self, key: &Key) {
        for state in &self.0 {
            state.forget(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Default)]
    struct FakeState(Mutex<HashSet<Key>>);

    impl PerSandbox for FakeState {
        fn forget(&self, key: &Key) {
            self.0.lock().remove(key);
        }
    }

    #[test]
    fn forget_reaches_all_owned_states() {
        let mut states = SandboxStates::default();
        let handles = [0, 1].map(|_| states.own(FakeState::default()));
        let [deleted, kept] = ["a", "b"].map(|name| Key {
            namespace: "ns".into(),
            name: name.into(),
        });
        for handle in &handles {
            handle.0.lock().extend([deleted.clone(), kept.clone()]);
        }
        states.forget(&deleted);
        assert!(
            handles
                .iter()
                .all(|state| *state.0.lock() == HashSet::from([kept.clone()]))
        );
    }
}
