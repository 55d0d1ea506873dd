//! The operator sleeps; meanwhile the API server is started anew twice, with changes in between. Where the
//! operator wants to go on, the server no longer knows what came after (410).

use std::process::Command;

use crds::Sandbox;
use crds::conditions::Reason;
use crds::sandbox::{Phase, SandboxStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tests::audit::{Writes, writes_to};
use tests::binaries::root;
use tokio::time::{Duration, timeout};

use crate::api_server::ApiServer;
use crate::controller::{Controller, NAME};

const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server of its own: make test-cluster"]
async fn what_happened_in_an_expired_watch_is_seen_and_nothing_is_written_twice() {
    define_resources();
    let server = ApiServer::find();
    for name in ["stays", "goes", "pauses"] {
        create(name).await;
    }
    let controller = Controller::start();
    for name in ["stays", "goes", "pauses"] {
        settled(name).await;
    }
    let seen = sandboxes().await.get("stays").await.unwrap();
    let seen = seen.resource_version().unwrap();
    let before = deeds("stays");

    controller.stop().await;
    server.restart().await;
    let going = pods().await.get("goes").await.unwrap().uid().unwrap();
    create("comes").await;
    let (api, params) = (sandboxes().await, PatchParams::default());
    api.delete("goes", &DeleteParams::default()).await.unwrap();
    let pause = Patch::Merge(json!({"spec": {"state": "Paused"}}));
    api.patch("pauses", &params, &pause).await.unwrap();
    server.restart().await;
    assert_eq!(expired(&seen).await, 410, "the server still knows");
    assert_eq!(pods().await.get_opt("comes").await.unwrap(), None);

    controller.go_on();
    settled("comes").await;
    until("pauses", |status| status.phase == Phase::Paused).await;
    let gone = await_condition(pods().await, "goes", conditions::is_deleted(&going));
    timeout(LIMIT, gone).await.unwrap().unwrap();

    let log = controller.log();
    assert!(log.contains("too old resource version"), "{log}");
    assert_eq!(deeds("stays"), before, "nothing has happened to it");
    let comes = deeds("comes");
    assert_eq!(comes.get("create pods 201"), Some(&1), "{comes:#?}");
    let pauses = deeds("pauses");
    assert_eq!(pauses.get("create pods 201"), Some(&1), "{pauses:#?}");
    assert_eq!(pauses.get("delete pods 200"), Some(&1), "{pauses:#?}");
    for deeds in [comes, pauses] {
        assert!(
            deeds.keys().all(|deed| !deed.ends_with(" 409")),
            "{deeds:#?}"
        );
    }
    let (status, said) = controller.readyz().await;
    assert_eq!(status, 200, "{said}");
}

/// What the controller has written to objects of this name so far; events come by the side.
fn deeds(name: &str) -> Writes {
    let mut writes = writes_to(NAME, name);
    writes.retain(|deed, _| !deed.contains(" events "));
    writes
}

fn define_resources() {
    for args in [
        ["apply", "--server-side", "-f", "manifests/crds"],
        [
            "wait",
            "--for=condition=Established",
            "-f",
            "manifests/crds",
        ],
    ] {
        let mut kubectl = Command::new("kubectl");
        let status = kubectl.args(args).current_dir(root()).status();
        assert!(status.unwrap().success(), "{args:?}");
    }
}

/// A client with connections of its own: those of an earlier one end with the server.
async fn client() -> Client {
    Client::try_default().await.unwrap()
}

async fn sandboxes() -> Api<Sandbox> {
    Api::namespaced(client().await, "default")
}

async fn pods() -> Api<Pod> {
    Api::namespaced(client().await, "default")
}

async fn create(name: &str) {
    let spec = json!({"image": "debian:12", "command": ["sleep", "infinity"]});
    let sandbox = json!({"metadata": {"name": name}, "spec": spec});
    let sandbox = serde_json::from_value(sandbox).unwrap();
    let created = sandboxes()
        .await
        .create(&PostParams::default(), &sandbox)
        .await;
    created.unwrap();
}

/// Waits until the controller has said all that there is to say of one that no node takes.
async fn settled(name: &str) {
    until(name, |status| status.reason == Some(Reason::Unschedulable)).await;
}

async fn until(name: &str, holds: impl Fn(&SandboxStatus) -> bool) {
    let reached =
        |sandbox: Option<&Sandbox>| sandbox.and_then(|s| s.status.as_ref()).is_some_and(&holds);
    let reached = await_condition(sandboxes().await, name, reached);
    let found = timeout(LIMIT, reached).await;
    found
        .unwrap_or_else(|_| panic!("{name} waits in vain"))
        .unwrap();
}

/// The code with which a watch from this version on is answered.
async fn expired(version: &str) -> u64 {
    let place = "/apis/openhands.dev/v1alpha1/namespaces/default/sandboxes";
    let path = format!("{place}?watch=1&timeoutSeconds=5&resourceVersion={version}");
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match client().await.request_text(request).await {
        Err(kube::Error::Api(status)) => status.code.into(),
        Err(error) => panic!("{error}"),
        Ok(events) => {
            let first = events.lines().next().unwrap_or("{}");
            let event: Value = serde_json::from_str(first).unwrap();
            event["object"]["code"].as_u64().unwrap_or_default()
        }
    }
}
