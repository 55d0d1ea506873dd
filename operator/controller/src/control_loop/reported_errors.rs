//! Last logged error of each sandbox, so that a retry that fails in the same way is not logged again.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::per_sandbox::PerSandbox;
use shared::index::Key;

/// Last logged error by sandbox.
#[derive(Debug, Default)]
pub(crate) struct ReportedErrors(Mutex<HashMap<Key, String>>);

impl ReportedErrors {
    /// Records an error. Returns whether it differs from that of the reconcile before.
    pub(crate) fn is_new(&self, key: &Key, error: &str) -> bool {
        let known = self.0.lock().insert(key.clone(), error.to_owned());
        known.is_none_or(|known| known != error)
    }
}

impl PerSandbox for ReportedErrors {
    fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_error_is_not_new_until_a_reconcile_succeeds() {
        let (errors, key) = (
            ReportedErrors::default(),
            Key {
                namespace: "ns".into(),
                name: "a".into(),
            },
        );
        let new = ["forbidden", "forbidden", "timeout", "forbidden"];
        assert_eq!(
            new.map(|error| errors.is_new(&key, error)),
            [true, false, true, true]
        );
        errors.forget(&key);
        assert!(errors.is_new(&key, "forbidden"));
    }
}
