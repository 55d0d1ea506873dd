//! Objects and servers the tests start from.

use k8s_openapi::{
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use standalone::api::{EmbeddedApi, Options};

pub(crate) fn definitions() -> Vec<CustomResourceDefinition> {
    vec![serde_yaml::from_str(include_str!("widgets.crd.yaml")).unwrap()]
}

pub(crate) fn server() -> EmbeddedApi {
    EmbeddedApi::in_memory(Options::for_tests(definitions()))
}

pub(crate) fn widgets(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "test.dev".into(),
        version: "v1".into(),
        api_version: "test.dev/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    };
    Api::default_namespaced_with(client.clone(), &resource)
}

pub(crate) fn pods(client: &Client) -> Api<Pod> {
    Api::default_namespaced(client.clone())
}

pub(crate) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn widget(name: &str) -> DynamicObject {
    object(
        json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"image": "a"}}),
    )
}

pub(crate) fn pod(name: &str) -> Pod {
    object(
        json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
}

/// A Pod that runs on a node, so that its deletion takes grace.
pub(crate) fn running_pod(name: &str) -> Pod {
    let mut pod = pod(name);
    pod.spec.as_mut().unwrap().node_name = Some("node".into());
    pod
}

pub(crate) async fn create_widget(client: &Client, name: &str) -> DynamicObject {
    widgets(client)
        .create(&PostParams::default(), &widget(name))
        .await
        .unwrap()
}

/// Makes the Pod an owned one.
pub(crate) fn owned_by(mut pod: Pod, owner: &DynamicObject) -> Pod {
    pod.metadata.owner_references = Some(vec![object(
        json!({"apiVersion": "test.dev/v1", "kind": "Widget",
        "name": owner.metadata.name, "uid": owner.metadata.uid, "controller": true}),
    )]);
    pod
}

/// The code and reason of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result.unwrap_err() {
        kube::Error::Api(status) => (status.code, status.reason),
        other => panic!("not an answer of the server: {other}"),
    }
}

pub(crate) fn message<T: std::fmt::Debug>(result: kube::Result<T>) -> String {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.message,
        other => panic!("not an answer of the server: {other}"),
    }
}
