//! The probe for user namespaces of Pods (`docs/decisions/114-user-namespaces-by-default.md`).

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};

use super::keeper::KeptProbe;
use super::probe_pod;
use super::runner::Probe;
use crate::config::{ControllerConfig, UserNamespaces};
use crate::reconcile::build::init_container::PROGRAM;

const POD: &str = "sandbox-user-namespace-probe";
/// Names of the volumes and their media. Volumes of Secrets are in memory as well, and there the
/// kernel maps users only from Linux 6.3.
const VOLUMES: [(&str, &str); 2] = [("disk", ""), ("memory", "Memory")];

/// Probe for Pods with user namespaces.
pub(super) const PROBE: KeptProbe = KeptProbe {
    name: "user_namespaces",
    is_asked_for: |config| config.pods.user_namespaces == UserNamespaces::Auto,
    build: user_namespace_probe,
    learn: |context, class, works| context.user_namespaces.record_probe(class, works),
};

/// The probe: its Pod has a user namespace and, as sandboxes do, volumes.
fn user_namespace_probe(config: &ControllerConfig) -> Probe {
    let mut container = probe_pod::container(config, PROGRAM);
    let mount = |(name, _)| VolumeMount {
        name: String::from(name),
        mount_path: format!("/{name}"),
        ..VolumeMount::default()
    };
    let volume = |(name, medium): (&str, &str)| Volume {
        name: name.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some(medium.into()).filter(|it: &String| !it.is_empty()),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    };
    container.volume_mounts = Some(VOLUMES.map(mount).into());
    let spec = PodSpec {
        containers: vec![container],
        volumes: Some(VOLUMES.map(volume).into()),
        host_users: Some(false),
        ..probe_pod::spec(config)
    };
    Probe {
        pod: probe_pod::pod(POD, spec),
        dropped: probe_pod::dropped_user_namespace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::config;

    #[test]
    fn probe_pod_is_restricted_and_has_a_user_namespace() {
        let mut pod = user_namespace_probe(&config()).pod;
        let dropped = probe_pod::dropped_user_namespace;
        assert_eq!(dropped(&pod), None);
        insta::assert_yaml_snapshot!(pod);
        pod.spec.as_mut().unwrap().host_users = None;
        assert!(dropped(&pod).is_some());
    }
}
