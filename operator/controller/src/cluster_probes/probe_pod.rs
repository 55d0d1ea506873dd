//! The Pod of a probe. It may run wherever sandboxes may, and has all that policies and quotas of
//! their namespace demand.

use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Pod, PodSpec, SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::config::ControllerConfig;
use crate::reconcile::build::init_container::{
    NON_ROOT_UID, minimal_container, restricted_security_context,
};

/// Seconds after which the kubelet ends the Pod, if its controller has died.
const DEADLINE_SECONDS: i64 = 300;

/// A Pod with this name: the same for every leader, so that the next one finds what the last left.
pub(super) fn pod(name: &str, spec: PodSpec) -> Pod {
    Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}

/// The container: it runs `program`, an executor. That image needs no shell and is on the nodes
/// anyway.
pub(super) fn container(config: &ControllerConfig, program: &str) -> Container {
    Container {
        name: "probe".into(),
        command: Some([program, "--version"].map(Into::into).to_vec()),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(NON_ROOT_UID),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".into(),
                localhost_profile: None,
            }),
            ..restricted_security_context()
        }),
        ..minimal_container(&config.executor_image)
    }
}

/// Fields of all probes.
pub(super) fn spec(config: &ControllerConfig) -> PodSpec {
    let settings = &config.pods;
    let reference = |name: &String| LocalObjectReference { name: name.clone() };
    PodSpec {
        restart_policy: Some("Never".into()),
        active_deadline_seconds: Some(DEADLINE_SECONDS),
        termination_grace_period_seconds: Some(1),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        runtime_class_name: config.defaults.runtime_class_name.clone(),
        image_pull_secrets: Some(settings.pull_secrets.iter().map(reference).collect()),
        node_selector: Some(settings.node_selector.clone()),
        affinity: settings.affinity.clone(),
        tolerations: Some(settings.tolerations.clone()),
        priority_class_name: settings.priority_class.clone(),
        ..PodSpec::default()
    }
}
