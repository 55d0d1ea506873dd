//! Namespace of the Pods that build images.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// Creates the namespace, unless an earlier run has.
pub(super) async fn create(client: &Client, name: &str) -> kube::Result<()> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces = Api::<Namespace>::all(client.clone());
    let parameters = PostParams::default();
    match namespaces.create(&parameters, &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}
