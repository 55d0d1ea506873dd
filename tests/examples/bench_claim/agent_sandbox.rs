//! Controller and resources of kubernetes-sigs/agent-sandbox, from `hack/agent-sandbox/build`.

use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::json;
use tests::cli_tools::{established, run_checked};

use crate::CONTROLLER;
use crate::process::Process;

pub(crate) const GROUP: &str = "extensions.agents.x-k8s.io";
pub(crate) const VERSION: &str = "v1beta1";
/// Those with which the project publishes figures of sustained load.
const FLAGS: [&str; 15] = [
    "--extensions",
    "--leader-elect=false",
    "--enable-webhook=false",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
    "--sandbox-concurrent-workers=200",
    "--sandbox-claim-concurrent-workers=150",
    "--sandbox-warm-pool-concurrent-workers=2",
    "--sandbox-warm-pool-max-refill-rate=100",
    "--api-connections=4",
    "--separate-watch-connection",
    "--cache-label-selectors",
    "--disable-claim-events",
    "--disable-claim-observability-annotations",
    "--sandbox-write-behind-window=250ms",
];

/// The newest version alone: others need a webhook, which the API server calls inside the cluster.
pub(crate) async fn define_resources(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for file in std::fs::read_dir(folder().join("crds")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut definition: CustomResourceDefinition = serde_yaml::from_str(&text).unwrap();
        definition.spec.versions.retain(|v| v.name == VERSION);
        definition.spec.conversion = Some(CustomResourceConversion {
            strategy: "None".to_owned(),
            webhook: None,
        });
        let how = PostParams::default();
        definitions.create(&how, &definition).await.unwrap();
    }
    established();
}

pub(crate) fn controller() -> Process {
    let mut config = Kubeconfig::read().unwrap();
    for user in &mut config.auth_infos {
        let user = user.auth_info.get_or_insert_default();
        user.impersonate = Some(CONTROLLER.to_owned());
        user.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    }
    let path = std::env::temp_dir().join(format!("{CONTROLLER}-{}", std::process::id()));
    std::fs::write(&path, serde_yaml::to_string(&config).unwrap()).unwrap();
    let mut command = Command::new(folder().join("controller"));
    let controller = Process::spawn(command.args(FLAGS).arg("--kubeconfig").arg(&path));
    controller.line("Starting workers");
    std::fs::remove_file(path).unwrap();
    controller
}

pub(crate) async fn put_template(client: &Client, name: &str, image: &str) {
    let resource = resource("SandboxTemplate");
    let templates: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let pod = json!({"spec": {"containers": [{"name": "sandbox", "image": image}]}});
    let template = DynamicObject::new(name, &resource).data(json!({"spec": {"podTemplate": pod}}));
    if templates.get_opt(name).await.unwrap().is_none() {
        let how = PostParams::default();
        templates.create(&how, &template).await.unwrap();
    }
}

pub(crate) fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind))
}

fn folder() -> PathBuf {
    run_checked("hack/agent-sandbox/build", &[]).trim().into()
}
