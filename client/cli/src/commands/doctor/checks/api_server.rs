//! API server.

use super::super::facts::Facts;
use super::super::finding::{Outcome, failed};

/// As `kubeVersion` of the chart.
const MIN_MINOR: u32 = 30;

pub(super) fn check(facts: &Facts) -> Outcome {
    let version = facts.version.as_ref().map_err(|error| {
        failed(
            format!("the API server is not reachable: {error}"),
            "check --kubeconfig and --context with `kubectl version`",
        )
    })?;
    let text = version["gitVersion"]
        .as_str()
        .unwrap_or("of unknown version");
    // Some providers append a plus sign.
    let minor = version["minor"].as_str().unwrap_or_default();
    let minor = minor
        .trim_end_matches(|c: char| !c.is_ascii_digit())
        .parse::<u32>();
    match minor {
        Ok(minor) if minor < MIN_MINOR => Err(failed(
            format!("Kubernetes {text} is older than 1.{MIN_MINOR}"),
            format!("upgrade the cluster to 1.{MIN_MINOR} or later"),
        )),
        _ => Ok(format!("Kubernetes {text}")),
    }
}
