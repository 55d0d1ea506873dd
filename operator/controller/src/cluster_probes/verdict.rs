//! The verdict of a probe, read from the state of its Pod.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};

/// Time for the namespaces of the Pod, from its scheduling. Images are pulled later.
const NAMESPACES_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Works,
    Fails(String),
    /// The Pod did not come to run, for a reason that may have nothing to do with the question.
    Unknown(String),
}

/// Verdict of a Pod at `now`; `None`: not yet.
pub(super) fn read(pod: &Pod, now: Timestamp) -> Option<Verdict> {
    let status = pod.status.as_ref()?;
    match status.phase.as_deref()? {
        "Succeeded" => Some(Verdict::Works),
        "Failed" => {
            let reason = problem(pod).unwrap_or_else(|| "the Pod failed".into());
            // The Pod as a whole has a reason when the kubelet ended it, such as by an eviction.
            Some(match status.reason {
                Some(_) => Verdict::Unknown(reason),
                None => Verdict::Fails(reason),
            })
        }
        _ if lacks_namespaces(status, now) => Some(Verdict::Unknown(
            "the container runtime does not create the namespaces of the Pod".into(),
        )),
        _ => None,
    }
}

/// True if the kubelet has had the Pod for [`NAMESPACES_TIMEOUT`], and still tries to create its
/// namespaces.
fn lacks_namespaces(status: &PodStatus, now: Timestamp) -> bool {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let find = |type_: &str, status: &str| -> Option<&PodCondition> {
        let mut all = conditions.iter();
        all.find(|it| it.type_ == type_ && it.status == status)
    };
    let scheduled = find("PodScheduled", "True");
    let since = scheduled.and_then(|it| it.last_transition_time.as_ref());
    find("PodReadyToStartContainers", "False").is_some()
        && since.is_some_and(|since| now.duration_since(since.0) >= NAMESPACES_TIMEOUT)
}

/// Reason for which the container did not run, or not yet.
pub(super) fn problem(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.iter().flatten().next();
    let state = container.and_then(|container| container.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|it| it.status == "False" && it.type_ == "PodScheduled");
    let found = waiting.map(|it| (&it.reason, &it.message));
    let found = found.or(ended.map(|it| (&it.reason, &it.message)));
    let found = found.or(unscheduled.map(|it| (&it.reason, &it.message)));
    let (reason, message) = found.unwrap_or((&status.reason, &status.message));
    let parts: Vec<&str> = [reason, message]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    (!parts.is_empty()).then(|| parts.join(": "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn verdict_follows_phase_and_conditions() {
        let state = json!({"terminated": {"exitCode": 128, "reason": "StartError",
            "message": "permission denied"}});
        let failed = json!({"phase": "Failed", "containerStatuses": [{"name": "probe", "ready": false,
            "restartCount": 0, "image": "", "imageID": "", "state": state}]});
        let evicted = json!({"phase": "Failed", "reason": "Evicted"});
        let stuck = |started: &str| {
            json!({"phase": "Pending", "conditions": [
                {"type": "PodReadyToStartContainers", "status": started},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:10Z"},
            ]})
        };
        let unknown = |text: &str| Some(Verdict::Unknown(text.into()));
        let namespaces = "the container runtime does not create the namespaces of the Pod";
        for (status, now, expected) in [
            (json!({}), 99, None),
            (json!({"phase": "Pending"}), 99, None),
            (json!({"phase": "Succeeded"}), 0, Some(Verdict::Works)),
            (
                failed,
                0,
                Some(Verdict::Fails("StartError: permission denied".into())),
            ),
            (evicted, 0, unknown("Evicted")),
            (stuck("False"), 39, None),
            (stuck("False"), 40, unknown(namespaces)),
            (stuck("True"), 99, None),
        ] {
            let pod: Value = json!({"spec": {"containers": []}, "status": status});
            let pod = serde_json::from_value(pod).unwrap();
            let now = Timestamp::from_second(now).unwrap();
            assert_eq!(read(&pod, now), expected, "{status}");
        }
    }
}
