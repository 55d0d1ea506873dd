//! Lease of the controller that acts.

use jiff::Timestamp;

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped};

const NAME: &str = "sandbox-operator-controller";
/// Five times the duration of the lease: clocks of nodes differ.
const MAX_AGE_SECONDS: f64 = 30.0;

pub(super) fn check(facts: &Facts) -> Outcome {
    let available = &facts.deployment("controller")?["status"]["availableReplicas"];
    if available.as_u64().unwrap_or(0) == 0 {
        return Err(skipped("no controller is available"));
    }
    let action = format!(
        "kubectl -n {} logs deployment/{}-controller",
        facts.namespace, facts.name
    );
    let Some(lease) = facts.find(Resource::Leases, NAME)? else {
        return Err(failed(
            format!("Lease {NAME} is absent: no controller leads"),
            action,
        ));
    };
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    if holder.is_empty() {
        return Err(failed(format!("Lease {NAME} has no holder"), action));
    }
    let renewed = lease["spec"]["renewTime"].as_str().unwrap_or_default();
    let Ok(renewed) = renewed.parse::<Timestamp>() else {
        return Err(failed(
            format!("Lease {NAME} has no time of renewal"),
            action,
        ));
    };
    let age = facts.now.duration_since(renewed).as_secs_f64();
    if age > MAX_AGE_SECONDS {
        let finding = format!("Lease {NAME} of {holder} was renewed {age:.0} s ago");
        return Err(failed(finding, action));
    }
    Ok(format!("{holder} leads"))
}
