//! Writes of objects that belong to a sandbox. They have deterministic names, are created once and
//! never updated, so that creating one again after a crash or with a stale cache is harmless.

use std::fmt::Debug;

use crds::names;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{Request, Resource};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::client::{CallError, bounded};

/// Why an object was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("{kind} {name} exists and belongs to somebody else")]
    NameTaken { kind: String, name: String },
    /// An earlier object of this name is on its way out.
    #[error("an earlier {kind} {name} is still being deleted")]
    Ending { kind: String, name: String },
    /// The API server will never take this object.
    #[error("{0}")]
    Invalid(String),
    /// The API server does not take it now: policy or quota.
    #[error("{0}")]
    Forbidden(String),
    #[error("the object has no JSON form")]
    Encode(#[from] serde_json::Error),
    #[error("the request cannot be made")]
    Request(#[from] kube::core::request::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Creates an object, or finds the one that the same owner created before. The answer is read as
/// `S`, a view of the same kind.
pub async fn create_owned<K, S>(
    client: &Client,
    namespace: &str,
    object: &K,
    owner_uid: &str,
) -> Result<S, CreateError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize,
    S: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let params = PostParams {
        field_manager: Some(names::CONTROLLER.into()),
        ..PostParams::default()
    };
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .create(&params, serde_json::to_vec(object)?)?;
    match bounded(client.request::<S>(request)).await {
        Ok(created) => Ok(created),
        Err(error) if error.is_already_exists() => {
            let api = Api::<S>::namespaced(client.clone(), namespace);
            let found = bounded(api.get(&object.name_any())).await?;
            owned(found, owner_uid)
        }
        Err(error) => Err(refusal(error)),
    }
}

/// Deletes one very object. That it is gone, or another one, is success; then there is no answer.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: Option<&str>,
    grace: Option<u32>,
) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: uid.map(|uid| Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match bounded(api.delete(name, &params)).await {
        Ok(answer) => Ok(answer.left()),
        Err(error) if error.is_not_found() => Ok(None),
        // A conflict may be one of uids, or any other.
        Err(error) if error.is_conflict() && !exists(api, name, uid).await? => Ok(None),
        Err(error) => Err(error),
    }
}

async fn exists<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<bool, CallError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let found = bounded(api.get_opt(name)).await?;
    Ok(found.is_some_and(|found| uid.is_none() || found.meta().uid.as_deref() == uid))
}

/// Deletes the object of this name if it belongs to this owner. One that belongs to somebody else
/// is left alone.
pub async fn delete_owned<K>(api: &Api<K>, name: &str, owner_uid: &str) -> Result<(), CallError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = bounded(api.get_opt(name)).await?;
    if let Some(found) = found.filter(|found| is_owned(found, owner_uid)) {
        delete(api, name, found.uid().as_deref(), None).await?;
    }
    Ok(())
}

impl CreateError {
    /// A fixed word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NameTaken { .. } => "name_taken",
            Self::Ending { .. } => "ending",
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::Encode(_) | Self::Request(_) => "encode",
            Self::Call(error) => error.category(),
        }
    }
}

fn is_owned<S: Resource<DynamicType = ()>>(found: &S, owner_uid: &str) -> bool {
    found.owner_references().iter().any(|o| o.uid == owner_uid)
}

fn owned<S: Resource<DynamicType = ()>>(found: S, owner_uid: &str) -> Result<S, CreateError> {
    if is_owned(&found, owner_uid) {
        return Ok(found);
    }
    Err(CreateError::NameTaken {
        kind: S::kind(&()).into_owned(),
        name: found.name_any(),
    })
}

/// What [`create_owned`] found, unless it is on its way out: that is not what was asked for.
pub fn lasting<S: Resource<DynamicType = ()>>(found: S) -> Result<S, CreateError> {
    if found.meta().deletion_timestamp.is_none() {
        return Ok(found);
    }
    Err(CreateError::Ending {
        kind: S::kind(&()).into_owned(),
        name: found.name_any(),
    })
}

fn refusal(error: CallError) -> CreateError {
    let message = error.status().map(|s| s.message.clone());
    match (error.code(), message) {
        (Some(400 | 413 | 422), Some(message)) => CreateError::Invalid(message),
        // What etcd says to an object that is just below the API server's own limit.
        (Some(500), Some(message)) if message.contains("request is too large") => {
            CreateError::Invalid(message)
        }
        (Some(403), Some(message)) => CreateError::Forbidden(message),
        _ => CreateError::Call(error),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::kubernetes::fake::FakeApi;

    #[tokio::test]
    async fn what_belongs_to_somebody_else_is_not_deleted() {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(FakeApi::default().client(), "ns");
        let owner = json!([{"apiVersion": "v1", "kind": "K", "name": "a", "uid": "mine"}]);
        for (name, owners) in [("owned", owner), ("foreign", json!([]))] {
            let claim = json!({"metadata": {"name": name, "uid": name, "ownerReferences": owners}});
            let claim = serde_json::from_value(claim).unwrap();
            api.create(&PostParams::default(), &claim).await.unwrap();
        }
        for name in ["owned", "foreign", "missing"] {
            delete_owned(&api, name, "mine").await.unwrap();
        }
        assert!(api.get_opt("owned").await.unwrap().is_none());
        assert!(api.get_opt("foreign").await.unwrap().is_some());
    }
}
