//! Nodes for Pods.

use serde_json::Value;

use super::super::facts::{Facts, Resource, name_of};
use super::super::finding::{Outcome, failed, warning};

pub(super) fn check(facts: &Facts) -> Outcome {
    let nodes = facts.list(Resource::Nodes)?;
    let (ready, other): (Vec<&Value>, Vec<_>) = nodes.iter().partition(|node| is_usable(node));
    let names: Vec<_> = other.iter().take(5).map(|node| name_of(node)).collect();
    let action = "see `kubectl describe nodes`; `kubectl uncordon` allows Pods on a node";
    if ready.is_empty() {
        return Err(failed("no node is Ready and schedulable", action));
    }
    if !other.is_empty() {
        let finding = format!("not Ready or not schedulable: {}", names.join(", "));
        return Err(warning(finding, action));
    }
    Ok(format!("{} nodes are Ready", ready.len()))
}

fn is_usable(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let is_ready = conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|entry| entry["type"] == "Ready" && entry["status"] == "True")
    });
    is_ready && node["spec"]["unschedulable"] != true
}
