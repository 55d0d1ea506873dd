//! Storage class of workspaces.

use super::super::facts::{Facts, Resource, name_of};
use super::super::finding::{Outcome, failed};
use crate::installation::variable;

const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

pub(super) fn check(facts: &Facts) -> Outcome {
    let configured = variable(facts.deployment("gateway")?, "GATEWAY_STORAGE_CLASS");
    let classes = facts.list(Resource::StorageClasses)?;
    if let Some(name) = configured {
        return match facts.find(Resource::StorageClasses, name)? {
            Some(_) => Ok(format!("StorageClass {name} exists")),
            None => Err(failed(
                format!("StorageClass {name} of the chart's values is absent"),
                "create it, or set sandboxes.workspace.storageClass to one of `kubectl get storageclasses`",
            )),
        };
    }
    let default = classes
        .iter()
        .find(|class| class["metadata"]["annotations"][DEFAULT] == "true");
    match default {
        Some(class) => Ok(format!("the default StorageClass is {}", name_of(class))),
        None => Err(failed(
            "the cluster has no default StorageClass, and the chart's values name none",
            format!(
                "kubectl annotate storageclass NAME {DEFAULT}=true, or set sandboxes.workspace.storageClass"
            ),
        )),
    }
}
