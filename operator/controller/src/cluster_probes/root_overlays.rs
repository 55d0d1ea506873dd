//! The probe for roots that are overlays on a volume, mounted by the supervisor in the user namespace
//! of its Pod (`docs/persistence.md`).

use k8s_openapi::api::core::v1::{
    Capabilities, EmptyDirVolumeSource, Pod, PodSpec, SeccompProfile, SecurityContext, Volume,
    VolumeMount,
};

use super::keeper::KeptProbe;
use super::probe_pod;
use super::runner::Probe;
use crate::config::{ControllerConfig, RootPersistence, UserNamespaces};
use crate::reconcile::build::init_container::PROGRAM;
use crate::reconcile::build::persistence::OVERLAY;

const POD: &str = "sandbox-root-overlay-probe";
/// Directory that the program mounts an overlay in.
const DIRECTORY: &str = "/volume";

/// Probe for supervisors that mount overlays.
pub(super) const PROBE: KeptProbe = KeptProbe {
    name: "root_overlays",
    is_asked_for: |config| {
        config.pods.user_namespaces != UserNamespaces::Never
            && config.persistence.root == RootPersistence::Auto
    },
    build: root_overlay_probe,
    learn: |context, works| context.root_overlays.record_probe(works),
};

/// The probe: its container has the privileges of a supervisor that mounts the root.
fn root_overlay_probe(config: &ControllerConfig) -> Probe {
    let mut container = probe_pod::container(config, PROGRAM);
    container.command = Some(
        [PROGRAM, "check-root-overlay", DIRECTORY]
            .map(Into::into)
            .into(),
    );
    container.security_context = Some(SecurityContext {
        run_as_user: Some(0),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".into()]),
            add: Some(OVERLAY.iter().copied().map(Into::into).collect()),
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".into(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    });
    container.volume_mounts = Some(vec![VolumeMount {
        name: "volume".into(),
        mount_path: DIRECTORY.into(),
        ..VolumeMount::default()
    }]);
    let spec = PodSpec {
        containers: vec![container],
        volumes: Some(vec![Volume {
            name: "volume".into(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }]),
        host_users: Some(false),
        ..probe_pod::spec(config)
    };
    Probe {
        pod: probe_pod::pod(POD, spec),
        dropped,
    }
}

fn dropped(pod: &Pod) -> Option<&'static str> {
    let kept = pod.spec.as_ref()?.host_users == Some(false);
    (!kept).then_some("the API server drops hostUsers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::config;

    #[test]
    fn probe_pod_has_the_privileges_of_a_supervisor_in_a_user_namespace() {
        let pod = root_overlay_probe(&config()).pod;
        assert_eq!(dropped(&pod), None);
        insta::assert_yaml_snapshot!(pod);
    }
}
