//! Objects and servers of the tests.

use k8s_openapi::{
    api::core::v1::Pod,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use standalone::api::{Clock, EmbeddedApi};

pub(crate) fn definitions() -> Vec<CustomResourceDefinition> {
    vec![serde_yaml::from_str(include_str!("widgets.crd.yaml")).unwrap()]
}

/// Clock with a fraction of a second, which timestamps do not show.
pub(crate) fn clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00.5Z".parse().unwrap())
}

pub(crate) fn server() -> EmbeddedApi {
    EmbeddedApi::in_memory(&definitions(), clock())
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
        json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"image": "a"}}),
    )
}

pub(crate) fn pod(name: &str) -> Pod {
    object(json!({"metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}))
}

/// Pod bound to a node, so that its deletion has a grace period.
pub(crate) fn running_pod(name: &str) -> Pod {
    let mut pod = pod(name);
    pod.spec.as_mut().unwrap().node_name = Some("node".into());
    pod
}

pub(crate) async fn create_widget(client: &Client, name: &str) -> DynamicObject {
    widgets(client).add(&widget(name)).await
}

/// Sets the owner of the Pod.
pub(crate) fn owned_by(mut pod: Pod, owner: &DynamicObject) -> Pod {
    pod.metadata.owner_references = Some(vec![object(
        json!({"apiVersion": "test.dev/v1", "kind": "Widget",
        "name": owner.metadata.name, "uid": owner.metadata.uid, "controller": true}),
    )]);
    pod
}

fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Box<kube::core::Status> {
    match result.unwrap_err() {
        kube::Error::Api(status) => status,
        other => panic!("not an answer of the server: {other}"),
    }
}

/// Code and reason of an error.
pub(crate) fn api_error<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    let status = refusal(result);
    (status.code, status.reason)
}

pub(crate) fn message<T: std::fmt::Debug>(result: kube::Result<T>) -> String {
    refusal(result).message
}

/// Requests with default parameters that must succeed.
pub(crate) trait ApiExt<K> {
    async fn add(&self, object: &K) -> K;
    /// Merges a patch.
    async fn change(&self, name: &str, patch: Value) -> K;
    async fn try_change(&self, name: &str, patch: Value) -> kube::Result<K>;
    /// The object if it remains for now.
    async fn remove(&self, name: &str) -> Option<K>;
    /// As `remove`, with a grace period in seconds.
    async fn remove_within(&self, name: &str, seconds: u32) -> Option<K>;
    /// Names of the selected objects.
    async fn names(&self, params: &ListParams) -> Vec<String>;
    async fn exists(&self, name: &str) -> bool;
}

impl<K> ApiExt<K> for Api<K>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned + ResourceExt,
{
    async fn add(&self, object: &K) -> K {
        self.create(&PostParams::default(), object).await.unwrap()
    }

    async fn change(&self, name: &str, patch: Value) -> K {
        self.try_change(name, patch).await.unwrap()
    }

    async fn try_change(&self, name: &str, patch: Value) -> kube::Result<K> {
        let params = PatchParams::default();
        self.patch(name, &params, &Patch::Merge(patch)).await
    }

    async fn remove(&self, name: &str) -> Option<K> {
        let deleted = self.delete(name, &DeleteParams::default()).await;
        deleted.unwrap().left()
    }

    async fn remove_within(&self, name: &str, seconds: u32) -> Option<K> {
        let params = DeleteParams::default().grace_period(seconds);
        self.delete(name, &params).await.unwrap().left()
    }

    async fn names(&self, params: &ListParams) -> Vec<String> {
        let items = self.list(params).await.unwrap().items;
        items.iter().map(ResourceExt::name_any).collect()
    }

    async fn exists(&self, name: &str) -> bool {
        self.get_opt(name).await.unwrap().is_some()
    }
}
