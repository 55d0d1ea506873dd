//! The conditions that a node owns. Those of others stay as they are, and a condition keeps the
//! moment since when it holds, so that a status that did not change is not written.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Facts, Phase};

/// The verdict on one condition: true, or a reason and a message why not.
type Verdict = Result<(), (&'static str, String)>;

pub(super) fn conditions(facts: &Facts, old: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let ready = ready(facts);
    let own: [(&str, Verdict); 4] = [
        ("PodScheduled", Ok(())),
        ("Initialized", initialized(facts)),
        ("ContainersReady", ready.clone()),
        ("Ready", ready),
    ];
    let before = old.conditions.as_deref().unwrap_or_default();
    let foreign = before
        .iter()
        .filter(|held| own.iter().all(|(kind, _)| held.type_ != *kind));
    let mut conditions: Vec<PodCondition> = foreign.cloned().collect();
    conditions.extend(own.into_iter().map(|(kind, verdict)| {
        let held = before.iter().find(|held| held.type_ == kind);
        condition(kind, verdict, held, now)
    }));
    conditions
}

fn initialized(facts: &Facts) -> Verdict {
    if facts.initialized() {
        return Ok(());
    }
    let open = facts
        .init
        .iter()
        .filter(|container| !container.ended_well());
    let names: Vec<&str> = open.map(|container| container.name.as_str()).collect();
    Err((
        "ContainersNotInitialized",
        listed("containers with incomplete status", &names),
    ))
}

fn ready(facts: &Facts) -> Verdict {
    match facts.phase() {
        Phase::Succeeded => Err(("PodCompleted", String::new())),
        Phase::Failed => Err(("PodFailed", String::new())),
        Phase::Pending | Phase::Running if facts.unready().is_empty() => Ok(()),
        Phase::Pending | Phase::Running => Err((
            "ContainersNotReady",
            listed("containers with unready status", &facts.unready()),
        )),
    }
}

fn listed(what: &str, names: &[&str]) -> String {
    format!("{what}: [{}]", names.join(" "))
}

fn condition(
    kind: &str,
    verdict: Verdict,
    held: Option<&PodCondition>,
    now: Timestamp,
) -> PodCondition {
    let status = if verdict.is_ok() { "True" } else { "False" };
    let (reason, message) = verdict.err().unzip();
    let same = held.filter(|held| held.status == status);
    let since = same.and_then(|held| held.last_transition_time.clone());
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
    fn moments_and_foreign_conditions_stay() {
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
