use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions, PropagationPolicy},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::fixtures::{
    ApiExt as _, api_error, create_widget, object, owned_by, pod, pods, running_pod, server,
    widgets,
};

async fn is_terminating<K: ResourceExt + Clone + std::fmt::Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
) -> bool {
    let object = api.get(name).await.unwrap();
    object.meta().deletion_timestamp.is_some()
}

async fn owners(pods: &Api<Pod>, name: &str) -> usize {
    pods.get(name).await.unwrap().owner_references().len()
}

#[tokio::test(start_paused = true)]
async fn running_pod_gets_grace_period() {
    let client = server().client();
    let pods = pods(&client);
    pods.add(&running_pod("p")).await;
    tokio::time::advance(Duration::from_mins(1)).await;
    let ends = |pod: &Pod| {
        pod.metadata
            .deletion_timestamp
            .clone()
            .unwrap()
            .0
            .to_string()
    };
    let terminating = pods.remove("p").await.unwrap();
    assert_eq!(ends(&terminating), "2026-01-01T00:01:30Z");
    assert_eq!(terminating.metadata.deletion_grace_period_seconds, Some(30));
    let sooner = pods.remove_within("p", 5).await.unwrap();
    assert_eq!(ends(&sooner), "2026-01-01T00:01:05Z");
    let same = pods.remove_within("p", 500).await.unwrap();
    assert_eq!(same.resource_version(), sooner.resource_version());
    assert!(pods.remove_within("p", 0).await.is_none());
    assert_eq!(api_error(pods.get("p").await).0, 404);
}

#[tokio::test]
async fn unbound_pod_is_deleted_at_once() {
    let pods = pods(&server().client());
    pods.add(&pod("p")).await;
    assert!(pods.remove("p").await.is_none());
    assert!(!pods.exists("p").await);
}

#[tokio::test]
async fn finalizer_blocks_deletion() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    let finalizers = |list| json!({"metadata": {"finalizers": list}});
    api.change("w", finalizers(json!(["test.dev/f"]))).await;
    assert!(api.remove("w").await.is_some());
    assert!(is_terminating(&api, "w").await);
    let more = finalizers(json!(["test.dev/f", "test.dev/g"]));
    assert_eq!(api_error(api.try_change("w", more).await).0, 422);
    api.change("w", finalizers(json!(null))).await;
    assert!(!api.exists("w").await);
}

#[tokio::test]
async fn dependents_are_deleted_with_owner() {
    let client = server().client();
    let owner = create_widget(&client, "w").await;
    let pods = pods(&client);
    pods.add(&owned_by(pod("waiting"), &owner)).await;
    pods.add(&owned_by(running_pod("running"), &owner)).await;
    pods.add(&pod("other")).await;
    widgets(&client).remove("w").await;
    assert!(!pods.exists("waiting").await);
    assert!(is_terminating(&pods, "running").await);
    assert!(!is_terminating(&pods, "other").await);
}

#[tokio::test]
async fn object_of_missing_owner_is_collected() {
    let client = server().client();
    let owner = create_widget(&client, "w").await;
    widgets(&client).remove("w").await;
    pods(&client).add(&owned_by(pod("late"), &owner)).await;
    assert!(!pods(&client).exists("late").await);
}

#[tokio::test]
async fn second_owner_and_orphaning_keep_dependent() {
    let client = server().client();
    let first = create_widget(&client, "a").await;
    let second = create_widget(&client, "b").await;
    let mut shared = owned_by(pod("shared"), &first);
    let mut reference = owned_by(pod("x"), &second).owner_references()[0].clone();
    reference.controller = None;
    shared.owner_references_mut().push(reference);
    pods(&client).add(&shared).await;
    widgets(&client).remove("a").await;
    assert_eq!(owners(&pods(&client), "shared").await, 1);
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    widgets(&client).delete("b", &orphan).await.unwrap();
    assert_eq!(owners(&pods(&client), "shared").await, 0);
}

#[tokio::test]
async fn delete_checks_preconditions() {
    let client = server().client();
    let made = create_widget(&client, "w").await;
    let api = widgets(&client);
    let only = async |uid: Option<String>| {
        let preconditions = Preconditions {
            uid,
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(preconditions);
        api.delete("w", &params).await
    };
    let refused = only(Some("other".into())).await;
    assert_eq!(api_error(refused), (409, "Conflict".into()));
    only(made.uid()).await.unwrap();
}

#[tokio::test]
async fn delete_collection_and_namespace_remove_objects() {
    let client = server().client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = object(json!({"metadata": {"name": "n"}}));
    namespaces.add(&namespace).await;
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    for name in ["a", "b", "c"] {
        let config = object(json!({"metadata": {"name": name, "labels": {"name": name}}}));
        configs.add(&config).await;
    }
    let (params, all) = (DeleteParams::default(), ListParams::default());
    let selected = all.clone().labels("name!=c");
    configs.delete_collection(&params, &selected).await.unwrap();
    assert_eq!(configs.names(&all).await, ["c"]);
    namespaces.remove("n").await;
    assert!(!namespaces.exists("n").await);
    assert_eq!(configs.names(&all).await, [""; 0]);
}

#[tokio::test]
async fn foreground_deletion_waits_for_dependents() {
    let client = server().client();
    let owner = create_widget(&client, "w").await;
    let pods = pods(&client);
    let child = owned_by(running_pod("child"), &owner);
    pods.add(&child).await;
    let api = widgets(&client);
    let waiting = api.delete("w", &DeleteParams::foreground()).await.unwrap();
    let waiting = waiting.left().unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    let child = pods.get("child").await.unwrap();
    assert!(child.metadata.deletion_timestamp.is_some());
    pods.remove_within("child", 0).await;
    assert!(!api.exists("w").await);

    create_widget(&client, "childless").await;
    let gone = api.delete("childless", &DeleteParams::foreground()).await;
    assert!(gone.unwrap().is_right());
}
