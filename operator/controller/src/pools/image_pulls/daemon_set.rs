//! The `DaemonSet` of a pool: one Pod on each node, whose containers have the images of a warm Pod
//! and hold them. No program of these images runs.

use std::collections::BTreeMap;

use crds::contract::path;
use crds::names;
use k8s_openapi::api::apps::v1::{
    DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet,
};
use k8s_openapi::api::core::v1::{
    Affinity, Container, Pod, PodSpec, PodTemplateSpec, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::reconcile::build::volumes::{BIN, read_only};
use crate::reconcile::build::{PoolRef, pool_owner};
use shared::index::Key;

/// Nodes that replace their Pod at the same time after a change of the images.
const MAX_UNAVAILABLE: &str = "25%";

/// Builds the `DaemonSet` from a warm Pod.
pub(super) fn build(pool: &Key, owner: &PoolRef, pod: Pod) -> DaemonSet {
    let labels = BTreeMap::from([(names::IMAGES_LABEL.to_owned(), pool.name.clone())]);
    let managed = (
        names::MANAGED_BY_LABEL.into(),
        names::CONTROLLER_FIELD_MANAGER.into(),
    );
    DaemonSet {
        metadata: ObjectMeta {
            name: Some(names::image_daemon_set(&pool.name)),
            namespace: Some(pool.namespace.clone()),
            labels: Some(BTreeMap::from([managed])),
            owner_references: Some(vec![pool_owner(owner)]),
            ..ObjectMeta::default()
        },
        spec: DaemonSetSpec {
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                match_expressions: None,
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: pod.spec.map(holding),
            },
            update_strategy: Some(DaemonSetUpdateStrategy {
                rolling_update: Some(RollingUpdateDaemonSet {
                    max_unavailable: Some(IntOrString::String(MAX_UNAVAILABLE.into())),
                    max_surge: None,
                }),
                type_: Some("RollingUpdate".into()),
            }),
            ..DaemonSetSpec::default()
        },
        status: None,
    }
}

/// A Pod on the same nodes, with the same images and rights, that does nothing.
fn holding(pod: PodSpec) -> PodSpec {
    // The first one installs the executor, or a volume has it.
    let (installer, others): (Vec<_>, Vec<_>) = pod
        .init_containers
        .unwrap_or_default()
        .into_iter()
        .partition(mounts_executor);
    let containers = pod.containers.into_iter().chain(others).map(hold);
    let bin = pod.volumes.into_iter().flatten().filter(|v| v.name == BIN);
    PodSpec {
        init_containers: Some(installer).filter(|all| !all.is_empty()),
        containers: containers.collect(),
        volumes: Some(bin.collect()),
        runtime_class_name: pod.runtime_class_name,
        security_context: pod.security_context,
        service_account_name: pod.service_account_name,
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        host_users: pod.host_users,
        image_pull_secrets: pod.image_pull_secrets,
        node_selector: pod.node_selector,
        affinity: pod.affinity.map(|affinity| Affinity {
            node_affinity: affinity.node_affinity,
            ..Affinity::default()
        }),
        tolerations: pod.tolerations,
        priority_class_name: pod.priority_class_name,
        termination_grace_period_seconds: Some(1),
        ..PodSpec::default()
    }
}

fn mounts_executor(container: &Container) -> bool {
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| mount.name == BIN)
}

fn hold(container: Container) -> Container {
    let amounts = |cpu: &str, memory: &str| {
        let amount = |name: &str, amount: &str| (name.to_owned(), Quantity(amount.to_owned()));
        Some(BTreeMap::from([
            amount("cpu", cpu),
            amount("memory", memory),
        ]))
    };
    Container {
        name: container.name,
        image: container.image,
        image_pull_policy: container.image_pull_policy,
        command: Some([path::EXECUTOR, "hold"].map(Into::into).to_vec()),
        resources: Some(ResourceRequirements {
            requests: amounts("1m", "4Mi"),
            limits: amounts("100m", "32Mi"),
            claims: None,
        }),
        security_context: container.security_context,
        volume_mounts: Some(vec![read_only(BIN, path::BIN_DIR)]),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Injection;
    use crate::pod_features::PodFeatures;
    use crate::pools::shape::WarmPods;
    use crate::tests::{config, key, keys};

    #[test]
    fn images_are_held_on_the_nodes_of_warm_pods() {
        let (mut config, keys, key) = (config(), keys(), key("p"));
        config.pods.pull_secrets = vec!["registry".into()];
        let pods = WarmPods {
            config: &config,
            keys: &keys,
            // An init container pulls and holds the executor image in any case.
            features: PodFeatures {
                injection: Injection::ImageVolume,
                ..PodFeatures::default()
            },
        };
        let pod_spec = json!({
            "nodeSelector": {"gpu": "true"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
                "podAntiAffinity": {},
            },
            "containers": [{"name": "side", "image": "side:1", "args": ["x"], "ports": [{"containerPort": 1}],
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false}}],
        });
        let spec = json!({"image": "own:1", "workspace": {"size": "1Gi"}, "podTemplate": {"spec": pod_spec}});
        let owner = PoolRef {
            name: key.name.clone(),
            uid: "uid-p".into(),
        };
        let pod = pods.images(&key, &owner, &serde_json::from_value(spec).unwrap());
        insta::assert_yaml_snapshot!("daemon_set", build(&key, &owner, pod.unwrap()));
    }
}
