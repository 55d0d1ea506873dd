//! Names of the URLs of API and sandboxes. The resolver of this machine may differ from that of
//! clients, so this is a warning at most.

use super::super::facts::Facts;
use super::super::finding::{Outcome, skipped, warning};

pub(super) fn check(facts: &Facts) -> Outcome {
    facts.deployment("gateway")?;
    if facts.hosts.is_empty() {
        return Err(skipped("the base URL has no name"));
    }
    for host in &facts.hosts {
        if let Err(cause) = &host.resolved {
            let name = &host.name;
            return Err(warning(
                format!("{name} does not resolve here: {cause}"),
                "add the records of docs/install.md, and one with * for the hosts of sandboxes",
            ));
        }
    }
    let names: Vec<_> = facts.hosts.iter().map(|host| host.name.as_str()).collect();
    Ok(format!("{} resolve", names.join(" and ")))
}
