use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
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
    let metadata = &widget.metadata;
    assert_eq!(metadata.namespace.as_deref(), Some("default"));
    assert_eq!(metadata.generation, Some(1));
    let created = widget.creation_timestamp().unwrap().0;
    assert_eq!(created.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(widget.uid().unwrap().len(), 36);
    let expected = json!({"image": "a", "state": "Running"});
    assert_eq!(widget.data["spec"], expected);
    assert_eq!(widgets(&client).get("w").await.unwrap(), widget);
}

#[tokio::test]
async fn create_rejects_conflicts_and_bad_names() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    for (name, expected) in [
        ("w", (409, "AlreadyExists".into())),
        ("No_Name", (422, "Invalid".into())),
        (&"x".repeat(300), (422, "Invalid".into())),
    ] {
        let result = api.create(&params(), &widget(name)).await;
        assert_eq!(api_error(result), expected, "{name}");
    }
    let elsewhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let config = object(json!({"metadata": {"name": "c"}}));
    let refused = message(elsewhere.create(&params(), &config).await);
    assert_eq!(refused, "namespaces \"nowhere\" not found");
    let missing = message(api.get("x").await);
    assert_eq!(missing, "widgets.test.dev \"x\" not found");
}

#[tokio::test]
async fn generate_name_adds_suffix() {
    let api = widgets(&server().client());
    let mut prefix = widget("");
    prefix.metadata.name = None;
    prefix.metadata.generate_name = Some("w-".into());
    let names = [
        api.add(&prefix).await.name_any(),
        api.add(&prefix).await.name_any(),
    ];
    let is_complete = |name: &String| name.starts_with("w-") && name.len() == 7;
    assert!(names.iter().all(is_complete), "{names:?}");
    assert_ne!(names[0], names[1]);
}

#[tokio::test]
async fn custom_resource_is_validated_by_schema() {
    let api = widgets(&server().client());
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
    let refused = message(api.patch("w", &strict, &Patch::Apply(&misspelt)).await);
    let expected = "strict decoding error: unknown field \"spec.imagee\"";
    assert_eq!(refused, expected);
    let expected = json!({"image": "a", "state": "Running"});
    assert_eq!(api.add(&misspelt).await.data["spec"], expected);
    let refused = message(api.try_change("w", json!({"spec": {"image": "b"}})).await);
    let expected =
        "Widget.test.dev \"w\" is invalid: spec: Invalid value: \"object\": image is immutable";
    assert_eq!(refused, expected);
}

#[tokio::test]
async fn spec_and_status_are_written_separately() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    let both = |replicas| json!({"spec": {"replicas": replicas}, "status": {"phase": "Running"}});
    let widget = api.change("w", both(2)).await;
    assert_eq!(widget.metadata.generation, Some(2));
    assert_eq!(widget.data.get("status"), None);
    let patch = Patch::Merge(both(3));
    let widget = api.patch_status("w", &PatchParams::default(), &patch).await;
    let widget = widget.unwrap();
    assert_eq!(widget.metadata.generation, Some(2));
    assert_eq!(widget.data["spec"]["replicas"], 2);
    assert_eq!(widget.data["status"], json!({"phase": "Running"}));
}

#[tokio::test]
async fn no_op_write_keeps_revision() {
    let server = server();
    let api = widgets(&server.client());
    let before = create_widget(&server.client(), "w").await;
    let revision = server.revision();
    let after = api.change("w", json!({"spec": {"image": "a"}})).await;
    api.replace("w", &params(), &before).await.unwrap();
    assert_eq!((after, server.revision()), (before, revision));
}

#[tokio::test]
async fn stale_write_conflicts() {
    let client = server().client();
    let stale = create_widget(&client, "w").await;
    let api = widgets(&client);
    api.change("w", json!({"spec": {"replicas": 2}})).await;
    let conflict = (409, "Conflict".to_owned());
    let replaced = api.replace("w", &params(), &stale).await;
    assert_eq!(api_error(replaced), conflict);
    for metadata in [
        json!({"resourceVersion": stale.resource_version()}),
        json!({"uid": "x"}),
    ] {
        let patch = json!({"metadata": metadata, "spec": {"replicas": 3}});
        assert_eq!(api_error(api.try_change("w", patch).await), conflict);
    }
}

#[tokio::test]
async fn all_patch_types_apply() {
    let client = server().client();
    let params = PatchParams::default();
    pods(&client).add(&pod("p")).await;
    let strategic = Patch::Strategic(
        json!({"spec": {"containers": [{"name": "c", "image": "j"}]},
            "metadata": {"labels": {"x": "y"}}}),
    );
    let patched = pods(&client).patch("p", &params, &strategic).await.unwrap();
    let image = &patched.spec.unwrap().containers[0].image;
    assert_eq!(image.as_deref(), Some("j"));
    assert_eq!(patched.metadata.labels.unwrap().len(), 2);

    let api = widgets(&client);
    let apply = async |spec| {
        let config = json!({"apiVersion": "test.dev/v1", "kind": "Widget", "spec": spec});
        let params = PatchParams::apply("me").force();
        api.patch("w", &params, &Patch::Apply(config))
            .await
            .unwrap()
    };
    let applied = apply(json!({"image": "a", "env": [{"name": "A", "value": "1"}]})).await;
    assert_eq!(applied.metadata.generation, Some(1));
    let smaller = apply(json!({"image": "a"})).await;
    let expected = json!({"image": "a", "state": "Running"});
    assert_eq!(smaller.data["spec"], expected);
    let strategic = Patch::Strategic(json!({"spec": {}}));
    assert_eq!(api_error(api.patch("w", &params, &strategic).await).0, 415);
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let server = server();
    let revision = server.revision();
    let dry = PostParams {
        dry_run: true,
        ..params()
    };
    let api = widgets(&server.client());
    let answer = api.create(&dry, &widget("w")).await.unwrap();
    assert_eq!(answer.data["spec"]["state"], "Running");
    assert_eq!(server.revision(), revision);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let client = server().client();
    create_widget(&client, "w").await;
    let api = widgets(&client);
    let scale = api.get_scale("w").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(0));
    let set = async |replicas| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale("w", &PatchParams::default(), &patch).await
    };
    assert_eq!(set(4).await.unwrap().spec.unwrap().replicas, Some(4));
    assert_eq!(api.get("w").await.unwrap().data["spec"]["replicas"], 4);
    assert_eq!(api_error(set(40).await).0, 422);
}

#[tokio::test]
async fn list_selects_by_labels_and_fields() {
    let client = server().client();
    for name in ["a", "b", "c"] {
        pods(&client).add(&pod(name)).await;
    }
    let (pods, everywhere) = (pods(&client), Api::<Pod>::all(client));
    let all = ListParams::default();
    let (labels, fields) = (
        all.clone().labels("app in (a, c)"),
        all.clone().fields("metadata.name=b"),
    );
    let pending = all.clone().fields("status.phase=Pending");
    for (api, list, expected) in [
        (&pods, all, &["a", "b", "c"][..]),
        (&pods, labels, &["a", "c"]),
        (&pods, fields, &["b"]),
        (&everywhere, pending, &["a", "b", "c"]),
    ] {
        assert_eq!(api.names(&list).await, expected, "{list:?}");
    }
}

#[tokio::test]
async fn pod_spec_is_mostly_immutable() {
    let pods = pods(&server().client());
    let made = pods.add(&pod("p")).await;
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    pods.change("p", json!({"spec": {"nodeName": "n"}})).await;
    for spec in [json!({"nodeName": "m"}), json!({"hostNetwork": true})] {
        let refused = pods.try_change("p", json!({"spec": spec})).await;
        assert_eq!(api_error(refused).0, 422);
    }
    let empty = object(json!({"metadata": {"name": "q"}, "spec": {"containers": []}}));
    assert_eq!(api_error(pods.create(&params(), &empty).await).0, 422);
}

#[tokio::test]
async fn secret_encodes_string_data() {
    let secrets: Api<Secret> = Api::default_namespaced(server().client());
    let secret = object(json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}));
    let made = secrets.add(&secret).await;
    assert_eq!(made.data.unwrap()["k"].0, b"v");
    assert_eq!(made.string_data, None);
}
