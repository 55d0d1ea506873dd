//! The Pod that shows whether image volumes work, and what its state says. It may run wherever
//! sandboxes may, and has all that policies and quotas of their namespace demand.

use crds::contract::path;
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Pod, PodSpec, SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::config::ControllerConfig;
use crate::reconcile::build::init_container::{
    NON_ROOT_UID, minimal_container, restricted_security_context,
};
use crate::reconcile::build::volumes::{BIN, image, read_only};

/// Name of the Pod: the same for every leader, so that the next one finds what the last one left.
pub(super) const NAME: &str = "sandbox-executor-probe";
/// Seconds after which the kubelet ends the Pod, if its controller has died.
const DEADLINE_SECONDS: i64 = 300;

/// Builds the Pod: it runs the executor of the mounted image. That of its own image needs no shell
/// and is on the nodes anyway.
pub(super) fn build(config: &ControllerConfig) -> Pod {
    let settings = &config.pods;
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    let container = Container {
        name: "probe".into(),
        command: Some([path::EXECUTOR, "--version"].map(Into::into).to_vec()),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NON_ROOT_UID),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                localhost_profile: None,
            }),
            ..restricted_security_context()
        }),
        volume_mounts: Some(vec![read_only(BIN, path::BIN_DIR)]),
        ..minimal_container(&config.executor_image)
    };
    Pod {
        metadata: ObjectMeta {
            name: Some(NAME.into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(vec![image(&config.executor_image)]),
            restart_policy: Some("Never".into()),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            termination_grace_period_seconds: Some(1),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            runtime_class_name: config.defaults.runtime_class_name.clone(),
            host_users: settings.user_namespaces.then_some(false),
            image_pull_secrets: Some(settings.pull_secrets.iter().map(reference).collect()),
            node_selector: Some(settings.node_selector.clone()),
            affinity: settings.affinity.clone(),
            tolerations: Some(settings.tolerations.clone()),
            priority_class_name: settings.priority_class.clone(),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// Reads from a Pod whether image volumes work; `None`: not known yet. The error is the reason.
pub(super) fn verdict(pod: &Pod) -> Option<Result<(), String>> {
    let mut volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    if !volumes.any(|volume| volume.image.is_some()) {
        return Some(Err("the API server drops image volumes".into()));
    }
    match pod.status.as_ref()?.phase.as_deref()? {
        "Succeeded" => Some(Ok(())),
        "Failed" => Some(Err(problem(pod).unwrap_or_else(|| "the Pod failed".into()))),
        _ => None,
    }
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
    use crate::tests::config;

    fn pod(volume: &Value, status: &Value) -> Pod {
        let spec = json!({"containers": [], "volumes": [volume]});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn verdict_follows_the_volume_and_the_phase() {
        let mounted = json!({"name": BIN, "image": {"reference": "executor"}});
        let failed = json!({"terminated": {"exitCode": 128, "reason": "StartError",
            "message": "permission denied"}});
        let failed = json!({"phase": "Failed", "containerStatuses": [{"name": "probe", "ready": false,
            "restartCount": 0, "image": "", "imageID": "", "state": failed}]});
        let late = json!({"phase": "Failed", "reason": "DeadlineExceeded"});
        let error = |text: &str| Some(Err(text.to_owned()));
        for (volume, status, expected) in [
            (
                json!({"name": BIN}),
                json!({}),
                error("the API server drops image volumes"),
            ),
            (mounted.clone(), json!({}), None),
            (mounted.clone(), json!({"phase": "Pending"}), None),
            (mounted.clone(), json!({"phase": "Succeeded"}), Some(Ok(()))),
            (
                mounted.clone(),
                failed,
                error("StartError: permission denied"),
            ),
            (mounted, late, error("DeadlineExceeded")),
        ] {
            assert_eq!(verdict(&pod(&volume, &status)), expected, "{status}");
        }
    }

    #[test]
    fn probe_pod_is_restricted_and_bounded() {
        let mut config = config();
        config.pods.pull_secrets = vec!["registry".into()];
        insta::assert_yaml_snapshot!(build(&config));
    }
}
