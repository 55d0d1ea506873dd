//! `allOf`, `anyOf`, `oneOf`, `not`. Structural schemas allow only value checks inside them.

use serde_json::Value;

use super::{Checker, check};

impl Checker<'_> {
    pub(super) fn combinations(&mut self, schema: &Value, value: &Value, path: &str) {
        let branches = |keyword: &str| schema[keyword].as_array();
        branches("allOf")
            .into_iter()
            .flatten()
            .for_each(|branch| self.value(branch, value, path));
        if branches("anyOf").is_some_and(|branches| self.count_matching(branches, value) == 0) {
            self.invalid(
                value.clone(),
                path,
                "must validate at least one schema (anyOf)",
            );
        }
        if branches("oneOf").is_some_and(|branches| self.count_matching(branches, value) != 1) {
            self.invalid(
                value.clone(),
                path,
                "must validate one and only one schema (oneOf)",
            );
        }
        if schema
            .get("not")
            .is_some_and(|not| self.matches(not, value))
        {
            self.invalid(value.clone(), path, "must not validate the schema (not)");
        }
    }

    fn count_matching(&self, branches: &[Value], value: &Value) -> usize {
        branches
            .iter()
            .filter(|branch| self.matches(branch, value))
            .count()
    }

    fn matches(&self, schema: &Value, value: &Value) -> bool {
        check(schema, self.patterns, value).is_empty()
    }
}
