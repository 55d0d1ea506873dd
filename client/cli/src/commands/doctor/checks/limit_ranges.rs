//! `LimitRange`s of the namespace of sandboxes, as the API server applies them to a sandbox of the chart's
//! defaults.

use serde_json::Value;
use shared::quantity::value;

use super::super::facts::{Facts, Resource, name_of};
use super::super::finding::{Outcome, failed, skipped};
use super::sandbox_needs::{Amounts, Needs, SandboxNeeds, amounts, is_more};

/// An object that a `LimitRange` judges.
struct Subject {
    name: &'static str,
    needs: Needs,
    /// Values of the chart that decide its needs.
    values: Option<&'static str>,
}

const RESOURCES: &str = "sandboxes.requests and sandboxes.limits";

pub(super) fn check(facts: &Facts) -> Outcome {
    let sandbox = SandboxNeeds::of(facts)?;
    let Some(namespace) = &facts.sandboxes else {
        return Err(skipped("the operator serves all namespaces"));
    };
    for range in facts.list(Resource::LimitRanges)? {
        let name = name_of(range);
        for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
            for subject in subjects(limit, &sandbox) {
                let Some(cause) = rejection(limit, &subject) else {
                    continue;
                };
                let edit = format!("kubectl -n {namespace} edit limitrange {name}");
                let values = subject.values;
                let action = values.map_or(edit.clone(), |it| format!("{edit}, or change {it}"));
                return Err(failed(
                    format!("LimitRange {name} rejects sandboxes: {cause}"),
                    action,
                ));
            }
        }
    }
    Ok("no LimitRange rejects sandboxes of the chart's defaults".into())
}

fn subjects(limit: &Value, sandbox: &SandboxNeeds) -> Vec<Subject> {
    let subject = |name, needs, values| Subject {
        name,
        needs,
        values,
    };
    match limit["type"].as_str() {
        Some("Container") => {
            let init = sandbox.init_container.clone();
            let init = init.map(|needs| subject("their init container", needs, None));
            let container = sandbox.container.clone();
            let container = subject("their container", container, Some(RESOURCES));
            let mut subjects: Vec<_> = init.into_iter().chain([container]).collect();
            for subject in &mut subjects {
                fill(&mut subject.needs.limits, &limit["default"]);
                fill(&mut subject.needs.requests, &limit["defaultRequest"]);
            }
            subjects
        }
        Some("Pod") => vec![subject("their Pod", sandbox.pod(), Some(RESOURCES))],
        Some("PersistentVolumeClaim") => {
            let size = sandbox.workspace.clone();
            let storage = |size: String| Amounts::from([("storage".to_owned(), size)]);
            let claim = |size: String| Needs {
                requests: storage(size.clone()),
                // A claim is judged by its request alone.
                limits: storage(size),
            };
            let claim = size.map(claim);
            let values = Some("sandboxes.workspace.size");
            claim
                .map(|needs| subject("their volume", needs, values))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn fill(own: &mut Amounts, defaults: &Value) {
    for (name, amount) in amounts(defaults) {
        own.entry(name).or_insert(amount);
    }
}

/// Reason for which the API server rejects an object.
fn rejection(limit: &Value, Subject { name, needs, .. }: &Subject) -> Option<String> {
    let Needs { requests, limits } = needs;
    for (resource, min) in amounts(&limit["min"]) {
        if !requests.contains_key(&resource) {
            return Some(format!("{name} has no request of {resource}"));
        }
        for (verb, amounts) in [("requests", requests), ("may use", limits)] {
            if let Some(amount) = amounts.get(&resource)
                && is_more(&min, amount)
            {
                let cause = format!("{name} {verb} {amount} {resource}, the minimum is {min}");
                return Some(cause);
            }
        }
    }
    for (resource, max) in amounts(&limit["max"]) {
        if !limits.contains_key(&resource) {
            return Some(format!("{name} has no limit of {resource}"));
        }
        for (verb, amounts) in [("may use", limits), ("requests", requests)] {
            if let Some(amount) = amounts.get(&resource)
                && is_more(amount, &max)
            {
                let cause = format!("{name} {verb} {amount} {resource}, the maximum is {max}");
                return Some(cause);
            }
        }
    }
    for (resource, ratio) in amounts(&limit["maxLimitRequestRatio"]) {
        let of = |amounts: &Amounts| amounts.get(&resource).and_then(|amount| value(amount));
        let share = of(limits).zip(of(requests));
        let is_within = share
            .zip(value(&ratio))
            .is_some_and(|((limit, request), most)| request > 0.0 && limit / request <= most);
        if !is_within {
            return Some(format!(
                "{name} has a limit of {resource} of more than {ratio} times its request"
            ));
        }
    }
    None
}
