//! RBAC of the service accounts.

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped};

pub(super) fn check(facts: &Facts) -> Outcome {
    if let Some(sandboxes) = &facts.sandboxes
        && facts.find(Resource::Namespaces, sandboxes)?.is_none()
    {
        return Err(skipped(format!("namespace {sandboxes} is absent")));
    }
    facts.deployment("gateway")?;
    for right in &facts.rights {
        match &right.is_allowed {
            Ok(true) => {}
            Ok(false) => {
                return Err(failed(
                    format!("denied: {}", right.text),
                    "helm upgrade the release with rbac.create=true, or bind the roles of the chart",
                ));
            }
            Err(error) => return Err(skipped(error.to_string())),
        }
    }
    Ok(format!("{} rights are granted", facts.rights.len()))
}
