//! Events of a change of a pool's status: a pure function of the statuses before and after a write.

use crds::pool::{SandboxPoolStatus, WhenExhausted};

use super::transition::{EventContent, normal, warning};

/// Events of a change between two statuses of one pool. Claims and refills have none.
pub(super) fn events_for_pool_change(
    before: &SandboxPoolStatus,
    after: &SandboxPoolStatus,
    when_exhausted: WhenExhausted,
) -> Vec<EventContent> {
    let all = [
        resized(before, after),
        rolled_out(before, after),
        blocked(before, after),
        exhausted(before, after, when_exhausted),
    ];
    all.into_iter().flatten().collect()
}

fn resized(before: &SandboxPoolStatus, after: &SandboxPoolStatus) -> Option<EventContent> {
    let note = format!("{} warm Pods instead of {}", after.desired, before.desired);
    (before.desired != after.desired).then(|| normal("Resized", "Resize", note))
}

/// A replacement of outdated Pods has begun or ended.
fn rolled_out(before: &SandboxPoolStatus, after: &SandboxPoolStatus) -> Option<EventContent> {
    let (reason, note) = match (before.outdated, after.outdated) {
        (0, 1..) => (
            "RolloutStarted",
            "the template has changed; warm Pods are being replaced",
        ),
        (1.., 0) => ("RolloutComplete", "all warm Pods are up to date"),
        _ => return None,
    };
    Some(normal(reason, "Rollout", note.to_owned()))
}

/// Warm Pods cannot be built or do not start.
fn blocked(before: &SandboxPoolStatus, after: &SandboxPoolStatus) -> Option<EventContent> {
    let problem = |status: &SandboxPoolStatus| {
        let mut conditions = status.conditions.iter();
        let blocked = conditions.find(|condition| condition.reason == "Blocked");
        blocked.map(|condition| condition.message.clone())
    };
    let note = problem(after).filter(|_| problem(before).is_none())?;
    Some(warning("Blocked", "Refill", note))
}

fn exhausted(
    before: &SandboxPoolStatus,
    after: &SandboxPoolStatus,
    policy: WhenExhausted,
) -> Option<EventContent> {
    let is_exhausted = before.ready > 0 && after.ready == 0 && after.desired > 0;
    let note = match policy {
        WhenExhausted::ColdStart => "no warm Pod is ready; sandboxes get Pods of their own",
        WhenExhausted::Wait => "no warm Pod is ready; sandboxes wait for one",
        WhenExhausted::Refuse => "no warm Pod is ready; new sandboxes are refused",
    };
    is_exhausted.then(|| warning("Exhausted", "Claim", note.to_owned()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

    use super::*;

    fn status(desired: u32, ready: u32, outdated: u32, problem: &str) -> SandboxPoolStatus {
        let condition = |message: &str| Condition {
            reason: "Blocked".into(),
            message: message.into(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
            status: "False".into(),
            type_: "Ready".into(),
        };
        SandboxPoolStatus {
            desired,
            ready,
            outdated,
            conditions: (!problem.is_empty())
                .then(|| condition(problem))
                .into_iter()
                .collect(),
            ..SandboxPoolStatus::default()
        }
    }

    #[test]
    fn changes_of_a_pool_have_events_and_claims_have_none() {
        for (before, after, expected) in [
            (status(3, 3, 0, ""), status(3, 2, 0, ""), ""),
            (status(3, 2, 0, ""), status(3, 3, 0, ""), ""),
            (status(0, 0, 0, ""), status(3, 0, 0, ""), "Resized"),
            (status(3, 3, 0, ""), status(3, 3, 3, ""), "RolloutStarted"),
            (status(3, 3, 2, ""), status(3, 3, 1, ""), ""),
            (status(3, 3, 1, ""), status(3, 3, 0, ""), "RolloutComplete"),
            (status(3, 1, 0, ""), status(3, 0, 0, ""), "Exhausted"),
            (status(3, 0, 0, ""), status(3, 0, 0, "no image"), "Blocked"),
            (status(3, 0, 0, "no image"), status(3, 0, 0, "no node"), ""),
        ] {
            let events = events_for_pool_change(&before, &after, WhenExhausted::Wait);
            let reasons: Vec<_> = events.iter().map(|event| &*event.reason).collect();
            assert_eq!(reasons.join(" "), expected, "{before:?} {after:?}");
        }
    }
}
