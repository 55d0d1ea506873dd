//! The probe for roots that are overlays on a volume, mounted by the supervisor in the user namespace
//! of its Pod (`docs/persistence.md`).

use k8s_openapi::api::core::v1::PodSpec;

use super::keeper::KeptProbe;
use super::probe_pod;
use super::runner::Probe;
use crate::config::{ControllerConfig, RootPersistence, UserNamespaces};
use crate::reconcile::build::persistence::OVERLAY;

const POD: &str = "sandbox-root-overlay-probe";

/// Probe for supervisors that mount overlays.
pub(super) const PROBE: KeptProbe = KeptProbe {
    name: "root_overlays",
    is_asked_for: |config| {
        config.pods.user_namespaces != UserNamespaces::Never
            && config.persistence.root == RootPersistence::Auto
    },
    build: root_overlay_probe,
    learn: |context, class, works| context.root_overlays.record_probe(class, works),
};

/// The probe: its container has the privileges of a supervisor that mounts the root.
fn root_overlay_probe(config: &ControllerConfig) -> Probe {
    let spec = PodSpec {
        host_users: Some(false),
        ..probe_pod::check_spec(config, "check-root-overlay", OVERLAY, "RuntimeDefault")
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
    fn probe_pod_has_the_privileges_of_a_supervisor_in_a_user_namespace() {
        insta::assert_yaml_snapshot!(root_overlay_probe(&config()).pod);
    }
}
