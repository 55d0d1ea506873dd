//! Work of a node before the sandbox container runs. The process node reports the progress of a
//! pull as the message of the waiting container. A kubelet reports only that it waits: whether it
//! pulls is in its Events alone, which the controller does not watch.

use shared::kubernetes::slim::{SlimContainerStatus, SlimPod};

/// Description for users. `None` without a node, or if no container is being prepared.
pub(super) fn describe(pod: &SlimPod) -> Option<String> {
    let node = pod.spec.node_name.as_deref()?;
    let (init, own) = (
        &pod.status.init_container_statuses,
        &pod.status.container_statuses,
    );
    let mut waiting = init.iter().chain(own).filter(|status| is_prepared(status));
    let first = waiting.next()?;
    let reported = std::iter::once(first).chain(waiting).find_map(message);
    let is_initialized = !init.is_empty() && init.iter().all(|s| s.state.terminated.is_some());
    Some(match reported {
        Some(message) => message.to_owned(),
        None if is_initialized => {
            format!("node {node} is pulling the image or creating the container")
        }
        None => format!("node {node} is mounting volumes, pulling images or creating containers"),
    })
}

fn is_prepared(status: &SlimContainerStatus) -> bool {
    let waiting = status.state.waiting.as_ref();
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    matches!(reason, Some("ContainerCreating" | "PodInitializing"))
}

fn message(status: &SlimContainerStatus) -> Option<&str> {
    let message = status.state.waiting.as_ref()?.message.as_deref();
    message.filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Description of a Pod on `node-1` with these states of init container and container.
    fn described(init: &Value, own: &Value) -> Option<String> {
        let status = |state| json!([{"name": "c", "state": state}]);
        let init = if init.is_null() {
            json!([])
        } else {
            status(init)
        };
        let pod = json!({
            "spec": {"nodeName": "node-1"},
            "status": {"initContainerStatuses": init, "containerStatuses": status(own)},
        });
        describe(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn preparation_is_the_progress_or_what_the_kubelet_tells() {
        let waiting = |reason: &str, message: Option<&str>| json!({"waiting": {"reason": reason, "message": message}});
        let initializing = waiting("PodInitializing", None);
        let done = json!({"terminated": {"exitCode": 0}});
        let pulls = waiting("ContainerCreating", Some("pulling image \"a\": 1 of 2 MB"));
        let mounting = "node node-1 is mounting volumes, pulling images or creating containers";
        let pulling = "node node-1 is pulling the image or creating the container";
        for (init, own, expected) in [
            (
                Value::Null,
                waiting("ContainerCreating", None),
                Some(mounting),
            ),
            (initializing.clone(), initializing.clone(), Some(mounting)),
            (done, initializing.clone(), Some(pulling)),
            (
                Value::Null,
                pulls.clone(),
                Some("pulling image \"a\": 1 of 2 MB"),
            ),
            (pulls, initializing, Some("pulling image \"a\": 1 of 2 MB")),
            (Value::Null, json!({"running": {}}), None),
            (
                Value::Null,
                waiting("CrashLoopBackOff", Some("back-off")),
                None,
            ),
        ] {
            assert_eq!(described(&init, &own).as_deref(), expected, "{init} {own}");
        }
        assert_eq!(describe(&SlimPod::default()), None);
    }
}
