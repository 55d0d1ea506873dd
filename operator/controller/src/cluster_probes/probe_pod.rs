//! The Pod of a probe. It may run wherever sandboxes may, and has all that policies and quotas of
//! their namespace demand.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, LocalObjectReference, Pod, PodSpec,
    SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::config::ControllerConfig;
use crate::reconcile::build::init_container::{
    NON_ROOT_UID, PROGRAM, minimal_container, restricted_security_context,
};

/// Seconds after which the kubelet ends the Pod, if its controller has died.
const DEADLINE_SECONDS: i64 = 300;
/// Mount point of the volume for a check of the executor.
const DIRECTORY: &str = "/volume";

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

/// Spec of a Pod that runs a check of the executor with privileges of a supervisor, on a volume.
pub(super) fn check_spec(
    config: &ControllerConfig,
    check: &str,
    capabilities: &[&str],
    seccomp: &str,
) -> PodSpec {
    let mut container = container(config, PROGRAM);
    container.command = Some([PROGRAM, check, DIRECTORY].map(Into::into).into());
    container.security_context = Some(SecurityContext {
        run_as_user: Some(0),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: Some(capabilities.iter().copied().map(Into::into).collect()),
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: seccomp.into(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    });
    container.volume_mounts = Some(vec![VolumeMount {
        name: "volume".into(),
        mount_path: DIRECTORY.into(),
        ..VolumeMount::default()
    }]);
    PodSpec {
        containers: vec![container],
        volumes: Some(vec![Volume {
            name: "volume".into(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }]),
        ..spec(config)
    }
}

/// Reason if the API server has created a Pod without the user namespace that it asks for.
pub(super) fn dropped_user_namespace(pod: &Pod) -> Option<&'static str> {
    let kept = pod.spec.as_ref()?.host_users == Some(false);
    (!kept).then_some("the API server drops hostUsers")
}
