use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams, ValidationDirective},
};
use serde_json::json;

use super::fixtures::{
    ApiExt as _, api_error, create_widget, message, object, pod, pods, server, widget, widgets,
};

fn params() -> PostParams {
    PostParams::default()
}

#[tokio::test]
async fn create_sets_identity() {
    let client = server().client();
    let widget = create_widget(&client, "w").await;
    assert_eq!(widget.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(widget.metadata.generation, Some(1));
    assert_eq!(
        widget.creation_timestamp().unwrap().0.to_string(),
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(widget.uid().unwrap().len(), 36);
    assert_eq!(
        widget.data["spec"],
        json!({"image": "a", "state": "Running"})
    );
    assert_eq!(widgets(&client).get("w").await.unwrap(), widget);
}

#[tokio::test]
async fn create_rejects_conflicts_and_bad_names() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    assert_eq!(
        api_error(api.create(&params(), &widget("w")).await),
        (409, "AlreadyExists".into())
    );
    assert_eq!(
        api_error(api.create(&params(), &widget("No_Name")).await),
        (422, "Invalid".into())
    );
    assert_eq!(
        api_error(api.create(&params(), &widget(&"x".repeat(300))).await),
        (422, "Invalid".into())
    );
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let config = object(json!({"metadata": {"name": "c"}}));
    assert_eq!(
        message(elsewhere.create(&params(), &config).await),
        "namespaces \"nowhere\" not found"
    );
    assert_eq!(
        message(api.get("x").await),
        "widgets.test.dev \"x\" not found"
    );
}

#[tokio::test]
async fn generate_name_adds_suffix() {
    let client = server().client();
    let mut prefix = widget("");
    prefix.metadata.name = None;
    prefix.metadata.generate_name = Some("w-".into());
    let names = [
        widgets(&client).add(&prefix).await.name_any(),
        widgets(&client).add(&prefix).await.name_any(),
    ];
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("w-") && name.len() == 7),
        "{names:?}"
    );
    assert_ne!(names[0], names[1]);
}

#[tokio::test]
async fn custom_resource_is_validated_by_schema() {
    let client = server().client();
    let api = widgets(&client);
    let mut bad = widget("w");
    bad.data = json!({"spec": {"image": 3, "state": "Off"}});
    assert_eq!(
        message(api.create(&params(), &bad).await),
        "Widget.test.dev \"w\" is invalid: [spec.image: Invalid value: \"integer\": spec.image in \
            body must be of type string: \"integer\", \
         spec.state: Unsupported value: \"Off\": supported values: \"Running\", \"Paused\"]"
    );
    let mut misspelt = widget("w");
    misspelt.data = json!({"spec": {"image": "a", "imagee": "b"}});
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("me")
    };
    let refused = api.patch("w", &strict, &Patch::Apply(&misspelt)).await;
    assert_eq!(
        message(refused),
        "strict decoding error: unknown field \"spec.imagee\""
    );
    assert_eq!(
        api.add(&misspelt).await.data["spec"],
        json!({"image": "a", "state": "Running"})
    );
    let other_image = Patch::Merge(json!({"spec": {"image": "b"}}));
    assert_eq!(
        message(api.patch("w", &PatchParams::default(), &other_image).await),
        "Widget.test.dev \"w\" is invalid: spec: Invalid value: \"object\": image is immutable"
    );
}

#[tokio::test]
async fn spec_and_status_are_written_separately() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    let both = Patch::Merge(json!({"spec": {"replicas": 2}, "status": {"phase": "Running"}}));
    let after_main = api.change("w", &both).await;
    assert_eq!(
        (
            after_main.metadata.generation,
            after_main.data.get("status")
        ),
        (Some(2), None)
    );
    let both = Patch::Merge(json!({"spec": {"replicas": 3}, "status": {"phase": "Running"}}));
    let after_status = api
        .patch_status("w", &PatchParams::default(), &both)
        .await
        .unwrap();
    assert_eq!(after_status.metadata.generation, Some(2));
    assert_eq!(after_status.data["spec"]["replicas"], 2);
    assert_eq!(after_status.data["status"], json!({"phase": "Running"}));
}

#[tokio::test]
async fn no_op_write_keeps_revision() {
    let server = server();
    let client = server.client();
    let before = create_widget(&client, "w").await;
    let revision = server.revision();
    let patch = Patch::Merge(json!({"spec": {"image": "a"}}));
    let after = widgets(&client).change("w", &patch).await;
    widgets(&client)
        .replace("w", &params(), &before)
        .await
        .unwrap();
    assert_eq!((after, server.revision()), (before, revision));
}

#[tokio::test]
async fn stale_write_conflicts() {
    let client = server().client();
    let stale = create_widget(&client, "w").await;
    let api = widgets(&client);
    let patch = Patch::Merge(json!({"spec": {"replicas": 2}}));
    api.change("w", &patch).await;
    assert_eq!(
        api_error(api.replace("w", &params(), &stale).await),
        (409, "Conflict".into())
    );
    let guarded = Patch::Merge(
        json!({"metadata": {"resourceVersion": stale.resource_version()}, "spec": {"replicas": 3}}),
    );
    assert_eq!(
        api_error(api.patch("w", &PatchParams::default(), &guarded).await),
        (409, "Conflict".into())
    );
    let other_uid = Patch::Merge(json!({"metadata": {"uid": "x"}, "spec": {"replicas": 3}}));
    assert_eq!(
        api_error(api.patch("w", &PatchParams::default(), &other_uid).await),
        (409, "Conflict".into())
    );
}

#[tokio::test]
async fn all_patch_types_apply() {
    let client = server().client();
    pods(&client).add(&pod("p")).await;
    let strategic = Patch::Strategic(
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]},
            "metadata": {"labels": {"x": "y"}}}),
    );
    let patched = pods(&client).change("p", &strategic).await;
    assert_eq!(
        patched.spec.unwrap().containers[0].image.as_deref(),
        Some("j")
    );
    assert_eq!(patched.metadata.labels.unwrap().len(), 2);

    let api = widgets(&client);
    let applied = Patch::Apply(json!({"apiVersion": "test.dev/v1", "kind": "Widget",
            "spec": {"image": "a", "env": [{"name": "A", "value": "1"}]}}));
    let apply = PatchParams::apply("me").force();
    assert_eq!(
        api.patch("w", &apply, &applied)
            .await
            .unwrap()
            .metadata
            .generation,
        Some(1)
    );
    let smaller = Patch::Apply(
        json!({"apiVersion": "test.dev/v1", "kind": "Widget", "spec": {"image": "a"}}),
    );
    assert_eq!(
        api.patch("w", &apply, &smaller).await.unwrap().data["spec"],
        json!({"image": "a", "state": "Running"})
    );
    let strategic = Patch::Strategic(json!({"spec": {}}));
    assert_eq!(
        api_error(api.patch("w", &PatchParams::default(), &strategic).await).0,
        415
    );
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let server = server();
    let revision = server.revision();
    let dry = PostParams {
        dry_run: true,
        ..params()
    };
    let answer = widgets(&server.client())
        .create(&dry, &widget("w"))
        .await
        .unwrap();
    assert_eq!(answer.data["spec"]["state"], "Running");
    assert_eq!(server.revision(), revision);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    assert_eq!(
        api.get_scale("w").await.unwrap().spec.unwrap().replicas,
        Some(0)
    );
    let patch = Patch::Merge(json!({"spec": {"replicas": 4}}));
    let scale = api
        .patch_scale("w", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(4));
    assert_eq!(api.get("w").await.unwrap().data["spec"]["replicas"], 4);
    let too_many = Patch::Merge(json!({"spec": {"replicas": 40}}));
    assert_eq!(
        api_error(
            api.patch_scale("w", &PatchParams::default(), &too_many)
                .await
        )
        .0,
        422
    );
}

#[tokio::test]
async fn list_selects_by_labels_and_fields() {
    let client = server().client();
    for name in ["a", "b", "c"] {
        pods(&client).add(&pod(name)).await;
    }
    let names = async |list: ListParams| -> Vec<String> {
        pods(&client)
            .list(&list)
            .await
            .unwrap()
            .items
            .iter()
            .map(ResourceExt::name_any)
            .collect()
    };
    assert_eq!(names(ListParams::default()).await, ["a", "b", "c"]);
    assert_eq!(
        names(ListParams::default().labels("app in (a, c)")).await,
        ["a", "c"]
    );
    assert_eq!(
        names(ListParams::default().fields("metadata.name=b")).await,
        ["b"]
    );
    let everywhere: Api<k8s_openapi::api::core::v1::Pod> = Api::all(client.clone());
    assert_eq!(
        everywhere
            .list(&ListParams::default().fields("status.phase=Pending"))
            .await
            .unwrap()
            .items
            .len(),
        3
    );
}

#[tokio::test]
async fn pod_spec_is_mostly_immutable() {
    let client = server().client();
    let made = pods(&client).add(&pod("p")).await;
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    let node = Patch::Merge(json!({"spec": {"nodeName": "n"}}));
    pods(&client).change("p", &node).await;
    for spec in [json!({"nodeName": "m"}), json!({"hostNetwork": true})] {
        let patch = Patch::Merge(json!({"spec": spec}));
        assert_eq!(
            api_error(
                pods(&client)
                    .patch("p", &PatchParams::default(), &patch)
                    .await
            )
            .0,
            422
        );
    }
    let empty = object(json!({"metadata": {"name": "q"}, "spec": {"containers": []}}));
    assert_eq!(
        api_error(pods(&client).create(&params(), &empty).await).0,
        422
    );
}

#[tokio::test]
async fn secret_encodes_string_data() {
    let secrets: Api<Secret> = Api::default_namespaced(server().client());
    let made = secrets
        .add(&object(
            json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}),
        ))
        .await;
    assert_eq!(made.data.unwrap()["k"].0, b"v");
    assert_eq!(made.string_data, None);
}

#[tokio::test]
async fn event_is_served_in_both_groups() {
    use k8s_openapi::api::{core::v1::Event as CoreEvent, events::v1::Event};
    let client = server().client();
    let (new, core): (Api<Event>, Api<CoreEvent>) = (
        Api::default_namespaced(client.clone()),
        Api::default_namespaced(client),
    );
    let event = object(
        json!({"metadata": {"name": "e"}, "note": "text", "reason": "R", "type": "Normal",
            "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c",
            "reportingInstance": "i", "regarding": {"name": "w"}}),
    );
    new.add(&event).await;
    let series = Patch::Merge(
        json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}),
    );
    assert_eq!(new.change("e", &series).await.note.as_deref(), Some("text"));
    let about = ListParams::default().fields("involvedObject.name=w");
    let found = core.list(&about).await.unwrap().items.remove(0);
    assert_eq!(
        (found.message.as_deref(), found.series.unwrap().count),
        (Some("text"), Some(2))
    );
}
