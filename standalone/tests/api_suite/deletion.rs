use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt,
    api::{
        DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
    },
};
use serde_json::json;

use crate::fixtures::{
    create_widget, object, owned_by, pod, pods, refusal, running_pod, server, widgets,
};

#[tokio::test(start_paused = true)]
async fn a_running_pod_is_given_its_grace() {
    let client = server().client();
    let pods = pods(&client);
    pods.create(&PostParams::default(), &running_pod("p"))
        .await
        .unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    let going = pods
        .delete("p", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(
        going.metadata.deletion_timestamp.unwrap().0.to_string(),
        "2026-01-01T00:01:30Z"
    );
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    let sooner = pods
        .delete("p", &DeleteParams::default().grace_period(5))
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(
        sooner.metadata.deletion_timestamp.unwrap().0.to_string(),
        "2026-01-01T00:01:05Z"
    );
    let same = pods
        .delete("p", &DeleteParams::default().grace_period(500))
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(
        same.metadata.resource_version,
        sooner.metadata.resource_version
    );
    assert!(
        pods.delete("p", &DeleteParams::default().grace_period(0))
            .await
            .unwrap()
            .is_right()
    );
    assert_eq!(refusal(pods.get("p").await).0, 404);
}

#[tokio::test]
async fn a_pod_that_runs_nowhere_goes_at_once() {
    let client = server().client();
    pods(&client)
        .create(&PostParams::default(), &pod("p"))
        .await
        .unwrap();
    assert!(
        pods(&client)
            .delete("p", &DeleteParams::default())
            .await
            .unwrap()
            .is_right()
    );
    assert!(pods(&client).get_opt("p").await.unwrap().is_none());
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    let finalizers = |list| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    api.patch(
        "w",
        &PatchParams::default(),
        &finalizers(json!(["test.dev/f"])),
    )
    .await
    .unwrap();
    assert!(
        api.delete("w", &DeleteParams::default())
            .await
            .unwrap()
            .is_left()
    );
    assert!(
        api.get("w")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    let more = finalizers(json!(["test.dev/f", "test.dev/g"]));
    assert_eq!(
        refusal(api.patch("w", &PatchParams::default(), &more).await).0,
        422
    );
    api.patch("w", &PatchParams::default(), &finalizers(json!(null)))
        .await
        .unwrap();
    assert!(api.get_opt("w").await.unwrap().is_none());
}

#[tokio::test]
async fn owned_objects_follow_their_owner() {
    let client = server().client();
    let owner = create_widget(&client, "w").await;
    let pods = pods(&client);
    pods.create(&PostParams::default(), &owned_by(pod("waiting"), &owner))
        .await
        .unwrap();
    pods.create(
        &PostParams::default(),
        &owned_by(running_pod("running"), &owner),
    )
    .await
    .unwrap();
    pods.create(&PostParams::default(), &pod("other"))
        .await
        .unwrap();
    widgets(&client)
        .delete("w", &DeleteParams::default())
        .await
        .unwrap();
    assert!(pods.get_opt("waiting").await.unwrap().is_none());
    assert!(
        pods.get("running")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    assert!(
        pods.get("other")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
    );
}

#[tokio::test]
async fn an_object_for_an_owner_that_is_gone_is_collected() {
    let client = server().client();
    let owner = create_widget(&client, "w").await;
    widgets(&client)
        .delete("w", &DeleteParams::default())
        .await
        .unwrap();
    pods(&client)
        .create(&PostParams::default(), &owned_by(pod("late"), &owner))
        .await
        .unwrap();
    assert!(pods(&client).get_opt("late").await.unwrap().is_none());
}

#[tokio::test]
async fn a_second_owner_and_orphaning_keep_an_object() {
    let client = server().client();
    let (first, second) = (
        create_widget(&client, "a").await,
        create_widget(&client, "b").await,
    );
    let mut shared = owned_by(pod("shared"), &first);
    let mut reference = owned_by(pod("x"), &second)
        .metadata
        .owner_references
        .unwrap()
        .remove(0);
    reference.controller = None;
    shared
        .metadata
        .owner_references
        .as_mut()
        .unwrap()
        .push(reference);
    pods(&client)
        .create(&PostParams::default(), &shared)
        .await
        .unwrap();
    widgets(&client)
        .delete("a", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(
        pods(&client)
            .get("shared")
            .await
            .unwrap()
            .owner_references()
            .len(),
        1
    );
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    widgets(&client).delete("b", &orphan).await.unwrap();
    assert_eq!(
        pods(&client)
            .get("shared")
            .await
            .unwrap()
            .owner_references()
            .len(),
        0
    );
}

#[tokio::test]
async fn preconditions_are_checked() {
    let client = server().client();
    let made = create_widget(&client, "w").await;
    let only = |uid: Option<String>| {
        DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version: None,
        })
    };
    assert_eq!(
        refusal(
            widgets(&client)
                .delete("w", &only(Some("other".into())))
                .await
        ),
        (409, "Conflict".into())
    );
    widgets(&client)
        .delete("w", &only(made.uid()))
        .await
        .unwrap();
}

#[tokio::test]
async fn collections_and_namespaces_empty() {
    let client = server().client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(
            &PostParams::default(),
            &object(json!({"metadata": {"name": "n"}})),
        )
        .await
        .unwrap();
    let configs: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    for name in ["a", "b", "c"] {
        let config = object(json!({"metadata": {"name": name, "labels": {"name": name}}}));
        configs
            .create(&PostParams::default(), &config)
            .await
            .unwrap();
    }
    configs
        .delete_collection(
            &DeleteParams::default(),
            &ListParams::default().labels("name!=c"),
        )
        .await
        .unwrap();
    assert_eq!(
        configs
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    namespaces
        .delete("n", &DeleteParams::default())
        .await
        .unwrap();
    assert!(namespaces.get_opt("n").await.unwrap().is_none());
    assert!(
        configs
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}
