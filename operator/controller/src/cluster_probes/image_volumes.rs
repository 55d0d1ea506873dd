//! The probe for image volumes, once for each leader (`docs/decisions/110-probe-image-volumes.md`).

use crds::contract::path;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use tokio_util::sync::CancellationToken;

use super::probe_pod;
use super::runner::{self, Probe};
use super::verdict::Verdict;
use crate::config::{ControllerConfig, Injection, UserNamespaces};
use crate::context::Context;
use crate::reconcile::build::volumes::{BIN, image, read_only};
use shared::runtime_class;

const NAME: &str = "image_volumes";
const POD: &str = "sandbox-executor-probe";

/// Finds out once whether Pods can mount the executor image.
pub(super) async fn probe(context: &Context, shutdown: &CancellationToken) {
    let class = context.config.defaults.runtime_class_name.as_deref();
    // Pods of other classes have an init container.
    let is_vm = class.is_some_and(|class| !runtime_class::shares_kernel(class));
    if context.config.pods.injection != Injection::Auto || is_vm {
        return;
    }
    let verdict = runner::run(context, &image_volume_probe(&context.config), shutdown).await;
    let Some(verdict) = verdict else {
        return;
    };
    let works = verdict == Verdict::Works;
    context
        .metrics
        .record_cluster_probe(NAME, class, works, context.clock.now());
    match verdict {
        Verdict::Works => {
            context.injection.record_proof();
            tracing::info!("new Pods mount the executor image as a volume");
        }
        Verdict::Fails(reason) | Verdict::Unknown(reason) => {
            tracing::info!(reason, "new Pods copy the executor in an init container");
        }
    }
}

/// The probe: its Pod runs the executor of the mounted image.
fn image_volume_probe(config: &ControllerConfig) -> Probe {
    let mut container = probe_pod::container(config, path::EXECUTOR);
    container.volume_mounts = Some(vec![read_only(BIN, path::BIN_DIR)]);
    let always = config.pods.user_namespaces == UserNamespaces::Always;
    let spec = PodSpec {
        containers: vec![container],
        volumes: Some(vec![image(&config.executor_image)]),
        host_users: always.then_some(false),
        ..probe_pod::spec(config)
    };
    Probe {
        pod: probe_pod::pod(POD, spec),
        dropped,
    }
}

fn dropped(pod: &Pod) -> Option<&'static str> {
    let mut volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let has_image = volumes.any(|volume| volume.image.is_some());
    (!has_image).then_some("the API server drops image volumes")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::config;

    #[test]
    fn pod_without_its_image_volume_was_dropped() {
        for (volume, is_dropped) in [
            (json!({"name": BIN}), true),
            (
                json!({"name": BIN, "image": {"reference": "executor"}}),
                false,
            ),
        ] {
            let pod = json!({"spec": {"containers": [], "volumes": [volume]}});
            let pod = serde_json::from_value(pod).unwrap();
            assert_eq!(dropped(&pod).is_some(), is_dropped);
        }
    }

    #[test]
    fn probe_pod_is_restricted_and_bounded() {
        let mut config = config();
        config.pods.pull_secrets = vec!["registry".into()];
        insta::assert_yaml_snapshot!(image_volume_probe(&config).pod);
    }
}
