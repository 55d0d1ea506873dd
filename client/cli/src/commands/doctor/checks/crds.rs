//! Custom resources.

use serde_json::Value;

use super::super::facts::{Facts, PLURALS, Resource};
use super::super::finding::{Outcome, failed};

const VERSION: &str = "v1alpha1";
const ACTION: &str = "helm upgrade --install sandbox-operator-crds charts/sandbox-operator-crds";

pub(super) fn check(facts: &Facts) -> Outcome {
    facts.list(Resource::Crds)?;
    for plural in PLURALS {
        let name = format!("{plural}.openhands.dev");
        let Some(crd) = facts.find(Resource::Crds, &name)? else {
            return Err(failed(
                format!("CustomResourceDefinition {name} is absent"),
                ACTION,
            ));
        };
        if !has(&crd["status"]["conditions"], |entry| {
            entry["type"] == "Established" && entry["status"] == "True"
        }) {
            let finding = format!("CustomResourceDefinition {name} is not established");
            return Err(failed(finding, format!("kubectl describe crd {name}")));
        }
        if !has(&crd["spec"]["versions"], |entry| {
            entry["name"] == VERSION && entry["served"] == true
        }) {
            let finding = format!("{name} does not serve version {VERSION}");
            return Err(failed(finding, ACTION));
        }
    }
    Ok(format!("{} kinds are established", PLURALS.len()))
}

fn has(list: &Value, is_it: impl Fn(&Value) -> bool) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(is_it))
}
