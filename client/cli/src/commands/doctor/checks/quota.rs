//! Quotas of the namespace of sandboxes: whether one more sandbox of the chart's defaults fits.

use serde_json::Value;
use shared::quantity::value;

use super::super::facts::{Facts, Resource, name_of};
use super::super::finding::{Outcome, failed, skipped, warning};
use super::sandbox_needs::{SandboxNeeds, amounts, is_more};
use crate::installation::variable;

/// Objects of which each sandbox has one.
const OBJECTS: [&str; 3] = ["pods", "persistentvolumeclaims", "secrets"];

pub(super) fn check(facts: &Facts) -> Outcome {
    let sandbox = SandboxNeeds::of(facts)?;
    let Some(namespace) = &facts.sandboxes else {
        return Err(skipped("the operator serves all namespaces"));
    };
    let priority = variable(facts.deployment("controller")?, "SANDBOX_PRIORITY_CLASS");
    let mut exhausted = None;
    for quota in facts.list(Resource::Quotas)? {
        if !counts_sandboxes(quota, priority.unwrap_or_default()) {
            continue;
        }
        let name = name_of(quota);
        let action = format!("kubectl -n {namespace} edit resourcequota {name}");
        for (resource, hard) in amounts(&quota["spec"]["hard"]) {
            let Some(need) = need(&sandbox, &resource) else {
                continue;
            };
            if is_more(&need, &hard) {
                return Err(failed(
                    format!(
                        "ResourceQuota {name} allows {hard} {resource}, a sandbox needs {need}"
                    ),
                    action,
                ));
            }
            let used = quota["status"]["used"][&resource].as_str().unwrap_or("0");
            let values = (value(used), value(&need), value(&hard));
            if let (Some(used_value), Some(need_value), Some(hard_value)) = values
                && used_value + need_value > hard_value
            {
                let finding = format!(
                    "ResourceQuota {name}: {used} of {hard} {resource} are used, a sandbox needs {need}"
                );
                exhausted.get_or_insert_with(|| warning(finding, action.clone()));
            }
        }
    }
    exhausted.map_or_else(|| Ok("no ResourceQuota is exhausted".into()), Err)
}

/// Amount of a resource of quotas that one more sandbox counts as.
fn need(sandbox: &SandboxNeeds, resource: &str) -> Option<String> {
    let counted = resource.strip_prefix("count/").unwrap_or(resource);
    if OBJECTS.contains(&counted) {
        return Some("1".into());
    }
    let pod = sandbox.pod();
    if let Some(name) = resource.strip_prefix("limits.") {
        return pod.limits.get(name).cloned();
    }
    let name = resource.strip_prefix("requests.").unwrap_or(resource);
    match name {
        "storage" => sandbox.workspace.clone(),
        _ => pod.requests.get(name).cloned(),
    }
}

/// Returns whether the scopes of a quota include the Pods of sandboxes, which request resources and have
/// no deadline.
fn counts_sandboxes(quota: &Value, priority: &str) -> bool {
    let spec = &quota["spec"];
    let scopes = spec["scopes"].as_array().into_iter().flatten();
    let expressions = spec["scopeSelector"]["matchExpressions"].as_array();
    let includes = |scope: &Value, selector: &Value| match scope.as_str() {
        Some("NotTerminating" | "NotBestEffort") => true,
        Some("PriorityClass") => {
            let values = selector["values"].as_array();
            let is_named = values.is_some_and(|values| values.iter().any(|it| it == priority));
            match selector["operator"].as_str() {
                Some("In") => is_named,
                Some("NotIn") => !is_named,
                Some("DoesNotExist") => priority.is_empty(),
                _ => !priority.is_empty(),
            }
        }
        _ => false,
    };
    scopes
        .into_iter()
        .all(|scope| includes(scope, &Value::Null))
        && expressions
            .into_iter()
            .flatten()
            .all(|it| includes(&it["scopeName"], it))
}
