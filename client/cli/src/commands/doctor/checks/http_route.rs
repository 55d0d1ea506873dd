//! `HTTPRoute` of the gateway, and what the Gateways say of it.

use serde_json::Value;

use super::super::facts::{Facts, Resource};
use super::super::finding::{Outcome, failed, skipped};

pub(super) fn check(facts: &Facts) -> Outcome {
    let (name, namespace) = (&facts.name, &facts.namespace);
    let found = facts.find(Resource::HttpRoutes, name)?;
    let route = found.ok_or_else(|| skipped("the release has no HTTPRoute"))?;
    let service = format!("{name}-gateway");
    let all = |field: &'static str| {
        move |value: &Value| value[field].as_array().cloned().unwrap_or_default()
    };
    let rules = all("rules")(&route["spec"]);
    let backends: Vec<_> = rules.iter().flat_map(all("backendRefs")).collect();
    if backends.is_empty() || backends.iter().any(|it| it["name"] != service.as_str()) {
        return Err(failed(
            format!("HTTPRoute {name} does not lead to Service {service}"),
            "helm upgrade the release",
        ));
    }
    let action = format!("kubectl -n {namespace} describe httproute {name}");
    let parents = all("parents")(&route["status"]);
    for parent in all("parentRefs")(&route["spec"]) {
        let gateway = parent["name"].as_str().unwrap_or_default();
        let is_own = |status: &&Value| {
            let other = &status["parentRef"];
            ["name", "sectionName", "port"]
                .iter()
                .all(|field| other[field] == parent[field])
        };
        let mut statuses = parents.iter().filter(is_own).peekable();
        if statuses.peek().is_none() {
            return Err(failed(
                format!("Gateway {gateway} has not taken HTTPRoute {name}"),
                format!(
                    "check httpRoute.parentRefs, and that this Gateway and its controller run: {action}"
                ),
            ));
        }
        for status in statuses {
            if let Some(problem) = problem(status) {
                let finding = format!("Gateway {gateway}, HTTPRoute {name}: {problem}");
                return Err(failed(finding, action));
            }
        }
    }
    Ok(format!(
        "HTTPRoute {name} is accepted and leads to {service}"
    ))
}

/// First condition that is not as it should be, with its reason.
fn problem(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array();
    ["Accepted", "ResolvedRefs"].iter().find_map(|type_| {
        let mut all = conditions.into_iter().flatten();
        let Some(condition) = all.find(|it| it["type"] == *type_) else {
            return Some(format!("condition {type_} is absent"));
        };
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        let (state, reason, message) = (text("status"), text("reason"), text("message"));
        (state != "True").then(|| format!("{type_} is {state}, {reason}: {message}"))
    })
}
