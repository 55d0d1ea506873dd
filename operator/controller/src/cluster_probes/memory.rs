//! Probes for level `Memory` (`docs/persistence.md`): a small tree of processes is saved and goes on,
//! with and without a user namespace. Nothing depends on the answers, which tell what to expect: a pause
//! that cannot save processes keeps the files, and its reason is in the status.

use k8s_openapi::api::core::v1::PodSpec;

use super::keeper::KeptProbe;
use super::probe_pod;
use super::runner::Probe;
use crate::config::{ControllerConfig, RootPersistence, UserNamespaces};
use crate::reconcile::build::persistence::MEMORY;

/// Probe for processes in the user namespace of their Pod.
pub(super) const IN_USER_NAMESPACE: KeptProbe = KeptProbe {
    name: "memory_in_user_namespaces",
    is_asked_for: |config| {
        keeps_memory_in_pods(config) && config.pods.user_namespaces != UserNamespaces::Never
    },
    build: |config| Probe {
        dropped: probe_pod::dropped_user_namespace,
        ..memory_probe(
            "sandbox-memory-in-user-namespace-probe",
            Some(false),
            config,
        )
    },
    learn: |_, _, _| (),
};

/// Probe for processes with the users of the node.
pub(super) const WITH_HOST_USERS: KeptProbe = KeptProbe {
    name: "memory_with_host_users",
    is_asked_for: |config| {
        keeps_memory_in_pods(config) && config.pods.user_namespaces != UserNamespaces::Always
    },
    build: |config| memory_probe("sandbox-memory-probe", None, config),
    learn: |_, _, _| (),
};

/// Returns whether processes are saved by what is in the executor's image, not by what the node has.
fn keeps_memory_in_pods(config: &ControllerConfig) -> bool {
    config.persistence.memory && config.persistence.root != RootPersistence::Node
}

/// A probe whose container has the privileges of a supervisor that saves processes.
fn memory_probe(name: &str, host_users: Option<bool>, config: &ControllerConfig) -> Probe {
    let spec = PodSpec {
        host_users,
        ..probe_pod::check_spec(config, "check-processes", MEMORY, "Unconfined")
    };
    Probe {
        pod: probe_pod::pod(name, spec),
        dropped: |_| None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::config;

    #[test]
    fn probe_pods_have_the_privileges_of_a_supervisor_that_saves_processes() {
        let probes = [IN_USER_NAMESPACE, WITH_HOST_USERS];
        let pods = probes.map(|probe| (probe.build)(&config()).pod);
        insta::assert_yaml_snapshot!(pods);
    }

    #[test]
    fn nodes_that_save_processes_themselves_are_not_probed() {
        let mut config = config();
        let asked = |config: &ControllerConfig| {
            [IN_USER_NAMESPACE, WITH_HOST_USERS].map(|probe| (probe.is_asked_for)(config))
        };
        config.persistence.memory = true;
        config.pods.user_namespaces = UserNamespaces::Auto;
        assert_eq!(asked(&config), [true; 2]);
        config.pods.user_namespaces = UserNamespaces::Always;
        assert_eq!(asked(&config), [true, false]);
        config.persistence.root = RootPersistence::Node;
        assert_eq!(asked(&config), [false; 2]);
    }
}
