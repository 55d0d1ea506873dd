//! Conditions owned by the node. Foreign conditions and transition times are kept, so that an
//! unchanged status is not written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Facts, has_started, succeeded};

/// Result of one condition: true, or reason and message.
type ConditionResult = Result<(), (&'static str, String)>;

pub(super) fn conditions(facts: &Facts, old: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let ready = ready(facts);
    let scheduled = match &facts.unschedulable {
        Some(message) => Err(("Unschedulable", message.clone())),
        None => Ok(()),
    };
    let own: [(&str, ConditionResult); 4] = [
        ("PodScheduled", scheduled),
        ("Initialized", initialized(facts)),
        ("ContainersReady", ready.clone()),
        ("Ready", ready),
    ];
    let before = old.conditions.as_deref().unwrap_or_default();
    let foreign = before
        .iter()
        .filter(|old| own.iter().all(|(kind, _)| old.type_ != *kind));
    let mut conditions: Vec<PodCondition> = foreign.cloned().collect();
    conditions.extend(own.into_iter().map(|(kind, result)| {
        let old = before.iter().find(|old| old.type_ == kind);
        condition(kind, result, old, now)
    }));
    conditions
}

fn initialized(facts: &Facts) -> ConditionResult {
    let text = "containers with incomplete status";
    listed("ContainersNotInitialized", text, facts.init(), succeeded)
}

fn ready(facts: &Facts) -> ConditionResult {
    match facts.phase() {
        "Succeeded" => Err(("PodCompleted", String::new())),
        "Failed" => Err(("PodFailed", String::new())),
        _ => {
            let text = "containers with unready status";
            listed("ContainersNotReady", text, facts.main(), has_started)
        }
    }
}

/// Fails with the names of the containers that are not `fine`.
fn listed(
    reason: &'static str,
    text: &str,
    containers: &[ContainerStatus],
    fine: fn(&ContainerStatus) -> bool,
) -> ConditionResult {
    let others = containers.iter().filter(|container| !fine(container));
    let names: Vec<&str> = others.map(|container| container.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err((reason, format!("{text}: [{}]", names.join(" "))))
}

fn condition(
    kind: &str,
    result: ConditionResult,
    old: Option<&PodCondition>,
    now: Timestamp,
) -> PodCondition {
    let status = if result.is_ok() { "True" } else { "False" };
    let (reason, message) = result.err().unzip();
    let same = old.filter(|old| old.status == status);
    let since = same.and_then(|old| old.last_transition_time.clone());
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message: message.filter(|message| !message.is_empty()),
        last_transition_time: since.or(Some(Time(now))),
        ..PodCondition::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_times_and_foreign_entries() {
        let facts = Facts::default();
        let early = Timestamp::UNIX_EPOCH;
        let mut old = PodStatus::default();
        let first = conditions(&facts, &old, early);
        let foreign = PodCondition {
            type_: "DisruptionTarget".into(),
            ..PodCondition::default()
        };
        old.conditions = Some([vec![foreign.clone()], first.clone()].concat());
        let second = conditions(&facts, &old, Timestamp::now());
        assert_eq!(second, [vec![foreign], first].concat());
    }
}
