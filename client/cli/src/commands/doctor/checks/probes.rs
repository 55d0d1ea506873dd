//! Answers of the controller's probes of the cluster, as it stores them.

use serde::Deserialize;
use serde_json::Value;

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, Problem, failed, skipped, warning};
use crate::installation::variable;

/// A probe: its name, the value of the chart that asks for it, what works if it does, and the value that
/// makes do without.
struct Probe {
    name: &'static str,
    works: &'static str,
    fails: &'static str,
    without: &'static str,
}

const USER_NAMESPACES: Probe = Probe {
    name: "user_namespaces",
    works: "sandboxes have user namespaces",
    fails: "sandboxes have no user namespaces",
    without: "sandboxes.userNamespaces=never",
};
const ROOT_OVERLAYS: Probe = Probe {
    name: "root_overlays",
    works: "overlays keep files outside of workspaces",
    fails: "archives keep files outside of workspaces, not overlays",
    without: "sandboxes.persistence.root=archive",
};
const MEMORY_IN_USER_NAMESPACES: Probe = Probe {
    name: "memory_in_user_namespaces",
    ..MEMORY_WITH_HOST_USERS
};
const MEMORY_WITH_HOST_USERS: Probe = Probe {
    name: "memory_with_host_users",
    works: "pauses keep processes",
    fails: "pauses keep files, not processes",
    without: "sandboxes.persistence.memory=false",
};

/// Record of a probe.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    works: bool,
    reason: Option<String>,
    probed_at: String,
}

pub(super) fn check(facts: &Facts) -> Outcome {
    let (mut findings, mut without) = (Vec::new(), Vec::new());
    for probe in asked_for(facts)? {
        let Some(record) = record(facts, &probe)? else {
            return Err(skipped(format!(
                "the controller has not finished its probe {}",
                probe.name
            )));
        };
        let said = if record.works {
            probe.works
        } else {
            without.push(probe.without);
            probe.fails
        };
        let reason = record.reason.map(|it| format!(": {it}"));
        let (reason, at) = (reason.unwrap_or_default(), record.probed_at);
        findings.push(format!("{said} (probe {} of {at}{reason})", probe.name));
    }
    let findings = findings.join("; ");
    if without.is_empty() {
        return Ok(findings);
    }
    let values = without.join(" and ");
    Err(warning(
        findings,
        format!(
            "docs/persistence.md has what nodes need; with {values} the chart makes do without it"
        ),
    ))
}

/// Stored answer of a probe, if there is one.
fn record(facts: &Facts, probe: &Probe) -> Result<Option<Record>, Problem> {
    let found = facts.list(Resource::ProbeRecords)?.first();
    let stored = found.map_or(&Value::Null, |map| &map["data"][probe.name]);
    let record = stored.as_str().map(serde_json::from_str).transpose();
    record.map_err(|_| unreadable(facts))
}

/// Probes that the chart's values leave the choice to, and that of level `Memory` for the Pods that
/// sandboxes get.
fn asked_for(facts: &Facts) -> Result<Vec<Probe>, Problem> {
    let controller = facts.deployment("controller")?;
    let read = |name| variable(controller, name).unwrap_or("auto");
    let namespaces = read("SANDBOX_USER_NAMESPACES");
    let may_have_namespaces = !["never", "false"].contains(&namespaces);
    let mut asked = Vec::new();
    if namespaces == "auto" {
        asked.push(USER_NAMESPACES);
    }
    if may_have_namespaces && read("SANDBOX_ROOT_PERSISTENCE") == "auto" {
        asked.push(ROOT_OVERLAYS);
    }
    if variable(controller, "SANDBOX_MEMORY_PERSISTENCE") == Some("true") {
        let has_namespaces = if namespaces == "auto" {
            record(facts, &USER_NAMESPACES)?.is_some_and(|record| record.works)
        } else {
            may_have_namespaces
        };
        asked.push(if has_namespaces {
            MEMORY_IN_USER_NAMESPACES
        } else {
            MEMORY_WITH_HOST_USERS
        });
    }
    if asked.is_empty() {
        return Err(skipped("the chart's values leave nothing to probes"));
    }
    Ok(asked)
}

fn unreadable(facts: &Facts) -> Problem {
    let namespace = &facts.namespace;
    let name = "sandbox-operator-cluster-probes";
    failed(
        format!("ConfigMap {name} cannot be read"),
        format!("kubectl -n {namespace} delete configmap {name}: the next leader probes again"),
    )
}
