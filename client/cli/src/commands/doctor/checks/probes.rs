//! Answers of the controller's probes of the cluster, as it stores them.

use std::collections::BTreeSet;

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
    /// No run has had a verdict.
    #[serde(default)]
    unanswered: bool,
    reason: Option<String>,
    probed_at: String,
}

pub(super) fn check(facts: &Facts) -> Outcome {
    let controller = facts.deployment("controller")?;
    let default = variable(controller, "RUNTIME_CLASS");
    let (mut findings, mut without) = (Vec::new(), Vec::new());
    for probe in asked_for(facts, default)? {
        let key = key(&probe, default);
        let Some(record) = record(facts, &key)? else {
            return Err(skipped(format!(
                "the controller has not finished its probe {key}"
            )));
        };
        if !record.works {
            without.push(probe.without);
        }
        findings.push(finding(&probe, &key, record));
    }
    // Probes of other runtime classes may fail: that is no fault of the installation.
    for class in other_classes(controller, default) {
        for probe in asked_for(facts, Some(class))? {
            let key = key(&probe, Some(class));
            if let Some(record) = record(facts, &key)? {
                let finding = finding(&probe, &key, record);
                findings.push(format!("under the runtime class {class}, {finding}"));
            }
        }
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

fn finding(probe: &Probe, key: &str, record: Record) -> String {
    let said = match record {
        Record { works: true, .. } => probe.works,
        Record {
            unanswered: true, ..
        } => "no run has had a verdict",
        Record { .. } => probe.fails,
    };
    let reason = record.reason.map(|it| format!(": {it}"));
    let (reason, at) = (reason.unwrap_or_default(), record.probed_at);
    format!("{said} (probe {key} of {at}{reason})")
}

/// Key of the answer of a probe for a runtime class.
fn key(probe: &Probe, class: Option<&str>) -> String {
    class.map_or_else(
        || probe.name.to_owned(),
        |class| format!("{}.{class}", probe.name),
    )
}

/// The runtime classes besides the default one that the controller is told of, by their real names.
fn other_classes<'a>(controller: &'a Value, default: Option<&str>) -> BTreeSet<&'a str> {
    let gvisor = variable(controller, "GVISOR_CLASS").unwrap_or("gvisor");
    let listed = variable(controller, "RUNTIME_CLASSES").unwrap_or_default();
    let listed = listed.split(',').map(|class| match class {
        "gvisor" => gvisor,
        "sysbox" => "sysbox-runc",
        other => other,
    });
    let is_other = |class: &&str| !class.is_empty() && Some(*class) != default;
    listed.filter(is_other).collect()
}

/// Stored answer, if there is one.
fn record(facts: &Facts, key: &str) -> Result<Option<Record>, Problem> {
    let found = facts.list(Resource::ProbeRecords)?.first();
    let stored = found.map_or(&Value::Null, |map| &map["data"][key]);
    let record = stored.as_str().map(serde_json::from_str).transpose();
    record.map_err(|_| unreadable(facts))
}

/// Probes that the chart's values leave the choice to, and that of level `Memory` for the Pods that
/// sandboxes of this runtime class get.
fn asked_for(facts: &Facts, class: Option<&str>) -> Result<Vec<Probe>, Problem> {
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
            let key = key(&USER_NAMESPACES, class);
            record(facts, &key)?.is_some_and(|record| record.works)
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
