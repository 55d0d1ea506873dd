//! A node without processes: Pods run as soon as they are created, and end as soon as they are
//! deleted.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::NAMESPACE;

/// Plays the node for ever.
pub(super) async fn run(client: Client) {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let mut events = std::pin::pin!(watcher(pods.clone(), Config::default()));
    let mut addresses = 1_u32..;
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(pod) | Event::InitApply(pod)) = event else {
            continue;
        };
        let name = pod.name_any();
        // Whatever fails here was overtaken: the Pod is gone or has changed.
        if pod.metadata.deletion_timestamp.is_some() {
            let now = DeleteParams::default().grace_period(0);
            let _ = pods.delete(&name, &now).await;
        } else if pod.spec.as_ref().is_some_and(|s| s.node_name.is_none()) {
            let Some(number) = addresses.next() else {
                return;
            };
            let _ = start(&pods, &name, number).await;
        }
    }
}

async fn start(pods: &Api<Pod>, name: &str, number: u32) -> kube::Result<()> {
    let bind = json!({"spec": {"nodeName": "scripted"}});
    let params = PatchParams::default();
    pods.patch(name, &params, &Patch::Merge(bind)).await?;
    let status = json!({"status": {
        "phase": "Running",
        "podIP": format!("127.1.{}.{}", number / 250, number % 250 + 1),
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "sandbox", "ready": true, "restartCount": 0, "image": "i", "imageID": "i",
            "state": {"running": {}},
        }],
    }});
    pods.patch_status(name, &params, &Patch::Merge(status))
        .await?;
    Ok(())
}
