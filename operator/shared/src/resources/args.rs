//! Flags of the resources of sandboxes, the same for controller and gateway.

use std::collections::BTreeMap;

use super::ResourceDefaults;
use crate::quantity;

/// Flags of the resources of sandboxes. A chart sets absent values to an empty string.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ResourceArgs {
    /// Default requests, as RESOURCE=QUANTITY, separated by commas. Resources that are not listed
    /// keep the built-in default: 250m CPU, 512Mi of memory, no ephemeral storage.
    #[arg(long, env = "SANDBOX_DEFAULT_REQUESTS", value_name = "RESOURCES", value_delimiter = ',', value_parser = parse_quantity_pair)]
    default_requests: Vec<(String, String)>,
    /// Default limits, as RESOURCE=QUANTITY, separated by commas. Resources that are not listed
    /// keep the built-in default: 2 CPUs, 2Gi of memory, 10Gi of ephemeral storage.
    #[arg(long, env = "SANDBOX_DEFAULT_LIMITS", value_name = "RESOURCES", value_delimiter = ',', value_parser = parse_quantity_pair)]
    default_limits: Vec<(String, String)>,
    /// Upper bound of resources per sandbox, as RESOURCE=QUANTITY, separated by commas.
    #[arg(long, env = "SANDBOX_MAX_RESOURCES", value_name = "RESOURCES", value_delimiter = ',', value_parser = parse_quantity_pair)]
    max_resources: Vec<(String, String)>,
}

impl ResourceArgs {
    /// The built-in defaults with these on top.
    pub fn defaults(&self, max_factor: f64) -> ResourceDefaults {
        let mut defaults = ResourceDefaults::default();
        defaults.requests.extend(pairs(&self.default_requests));
        defaults.limits.extend(pairs(&self.default_limits));
        defaults.max_resources = pairs(&self.max_resources);
        defaults.max_factor = max_factor;
        defaults
    }
}

/// Drops the empty pair of an empty variable.
fn pairs(pairs: &[(String, String)]) -> BTreeMap<String, String> {
    let named = pairs.iter().filter(|(name, _)| !name.is_empty());
    named.cloned().collect()
}

fn parse_quantity_pair(text: &str) -> Result<(String, String), String> {
    let (name, amount) = match text.split_once('=') {
        Some((name, amount)) if !name.is_empty() => (name, amount),
        _ if text.is_empty() => return Ok((String::new(), String::new())),
        _ => return Err(format!("{text:?} must have the form NAME=VALUE")),
    };
    if quantity::value(amount).is_none() {
        return Err(format!(
            "{amount:?} is not a quantity (examples: 500m, 2Gi)"
        ));
    }
    Ok((name.to_owned(), amount.to_owned()))
}
