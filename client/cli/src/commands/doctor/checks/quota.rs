//! Quotas of the namespace of sandboxes.

use serde_json::Value;

use super::super::facts::{Facts, Resource, name_of};
use super::super::finding::{Outcome, failed, skipped, warning};

pub(super) fn check(facts: &Facts) -> Outcome {
    facts.deployment("gateway")?;
    let Some(namespace) = &facts.sandboxes else {
        return Err(skipped("the operator serves all namespaces"));
    };
    for quota in facts.list(Resource::Quotas)? {
        let name = name_of(quota);
        let action = format!("kubectl -n {namespace} edit resourcequota {name}");
        for resource in ["pods", "count/pods", "persistentvolumeclaims", "secrets"] {
            let hard = count(&quota["spec"]["hard"][resource]);
            let used = count(&quota["status"]["used"][resource]).unwrap_or(0);
            match hard {
                Some(0) => {
                    return Err(failed(
                        format!("ResourceQuota {name} allows no {resource}"),
                        action,
                    ));
                }
                Some(hard) if used >= hard => {
                    let finding =
                        format!("ResourceQuota {name}: {used} of {hard} {resource} are used");
                    return Err(warning(finding, action));
                }
                _ => {}
            }
        }
    }
    Ok("no ResourceQuota is exhausted".into())
}

/// Plain numbers; other quantities are none.
fn count(quantity: &Value) -> Option<u64> {
    quantity.as_str()?.parse().ok()
}
