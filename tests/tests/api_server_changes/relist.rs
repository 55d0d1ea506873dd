//! The operator sleeps; meanwhile the API server is started anew twice, with changes in between. Where the
//! operator wants to go on, the server no longer knows what came after (410).

use crds::sandbox::Phase;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use tests::audit::Writes;
use tests::cli_tools::define_resources;
use tokio::time::timeout;

use crate::api_server::ApiServer;
use crate::controller::Controller;
use crate::fixture::{
    WAIT_TIMEOUT, client, create, deeds, forget_resources, pods, sandboxes, settled, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an API server of its own: make test-cluster"]
async fn relist_after_410_sees_changes_without_duplicate_writes() {
    forget_resources();
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
    timeout(WAIT_TIMEOUT, gone).await.unwrap().unwrap();

    let log = controller.log();
    assert!(log.contains("too old resource version"), "{log}");
    assert_eq!(deeds("stays"), before, "nothing has happened to it");
    let comes = deeds("comes");
    assert_eq!(comes.get("create pods 201"), Some(&1), "{comes:#?}");
    let pauses = deeds("pauses");
    assert_eq!(pauses.get("create pods 201"), Some(&1), "{pauses:#?}");
    assert_eq!(pauses.get("delete pods 200"), Some(&1), "{pauses:#?}");
    let refused = |deeds: &Writes| {
        let mut refused = deeds.clone();
        refused.retain(|deed, _| deed.ends_with(" 409"));
        refused
    };
    assert_eq!(refused(&pauses), Writes::new());
    // A list that is older than our own write hides the Pod: making it is tried again then, and refused.
    let again = Writes::from([("create pods 409".into(), 1)]);
    let refused = refused(&comes);
    assert!(refused.is_empty() || refused == again, "{refused:#?}");
    let (status, said) = controller.readyz().await;
    assert_eq!(status, 200, "{said}");
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
