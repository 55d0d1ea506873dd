//! Creates and deletes owned objects. They have deterministic names and are never updated, so
//! repeating a creation after a crash or with a stale index is harmless.

use std::fmt::Debug;

use crds::names;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{Request, Resource};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api_messages;
use super::client::{CallError, with_timeout};

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("{kind} {name} exists and has another owner")]
    NameTaken { kind: String, name: String },
    /// An earlier object of this name is terminating.
    #[error("an earlier {kind} {name} is still being deleted")]
    Terminating { kind: String, name: String },
    /// The API server will never accept this object.
    #[error("{0}")]
    Invalid(String),
    /// Policy or quota rejects the object at present.
    #[error("{0}")]
    Forbidden(String),
    /// The namespace is being deleted.
    #[error("{0}")]
    NamespaceTerminating(String),
    #[error("cannot serialize the object as JSON")]
    Encode(#[from] serde_json::Error),
    #[error("cannot build the request")]
    Request(#[from] kube::core::request::Error),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Creates an object, or reads the existing one of the same owner, as `S`, a view of the kind.
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
        field_manager: Some(names::CONTROLLER_FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    let request = Request::new(K::url_path(&(), Some(namespace)))
        .create(&params, serde_json::to_vec(object)?)?;
    match with_timeout(client.request::<S>(request)).await {
        Ok(created) => Ok(created),
        Err(error) if error.is_already_exists() => {
            let api = Api::<S>::namespaced(client.clone(), namespace);
            let found = with_timeout(api.get(&object.name_any())).await?;
            check_owner(found, owner_uid)
        }
        Err(error) => Err(classify_error(error)),
    }
}

/// Preconditions of a deletion: it is the object with this uid.
pub fn with_uid(uid: &str) -> Preconditions {
    Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    }
}

/// Deletes an object. Success with `None` if it is gone or was replaced.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    preconditions: Option<Preconditions>,
    grace: Option<u32>,
) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let uid = preconditions.as_ref().and_then(|it| it.uid.clone());
    let uid = uid.as_deref();
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions,
        ..DeleteParams::background()
    };
    match with_timeout(api.delete(name, &params)).await {
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
    let found = with_timeout(api.get_opt(name)).await?;
    Ok(found.is_some_and(|found| uid.is_none() || found.meta().uid.as_deref() == uid))
}

/// Deletes the object of this name if it has this owner.
pub async fn delete_owned<K>(api: &Api<K>, name: &str, owner_uid: &str) -> Result<(), CallError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let found = with_timeout(api.get_opt(name)).await?;
    if let Some(found) = found.filter(|found| is_owned(found, owner_uid)) {
        delete(api, name, found.uid().as_deref().map(with_uid), None).await?;
    }
    Ok(())
}

impl CreateError {
    /// Returns whether an admission policy rejects the object for what it may do.
    pub fn is_policy_rejection(&self) -> bool {
        match self {
            Self::Forbidden(message) | Self::Invalid(message) => {
                api_messages::is_policy_rejection(message)
            }
            _ => false,
        }
    }

    /// Error category for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::NameTaken { .. } => "name_taken",
            Self::Terminating { .. } => "ending",
            Self::Invalid(_) => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::NamespaceTerminating(_) => "namespace_ends",
            Self::Encode(_) | Self::Request(_) => "encode",
            Self::Call(error) => error.category(),
        }
    }
}

fn is_owned<S: Resource<DynamicType = ()>>(found: &S, owner_uid: &str) -> bool {
    found.owner_references().iter().any(|o| o.uid == owner_uid)
}

fn check_owner<S: Resource<DynamicType = ()>>(found: S, owner_uid: &str) -> Result<S, CreateError> {
    if is_owned(&found, owner_uid) {
        return Ok(found);
    }
    Err(CreateError::NameTaken {
        kind: S::kind(&()).into_owned(),
        name: found.name_any(),
    })
}

/// Rejects a terminating object found by [`create_owned`].
pub fn reject_terminating<S: Resource<DynamicType = ()>>(found: S) -> Result<S, CreateError> {
    if found.meta().deletion_timestamp.is_none() {
        return Ok(found);
    }
    Err(CreateError::Terminating {
        kind: S::kind(&()).into_owned(),
        name: found.name_any(),
    })
}

/// Error of a creation, by the response of the API server.
pub fn classify_error(error: CallError) -> CreateError {
    let Some(message) = error.status().map(|s| s.message.clone()) else {
        return CreateError::Call(error);
    };
    let too_large = api_messages::is_object_too_large(&message);
    match error.code() {
        Some(400 | 413 | 422) => CreateError::Invalid(message),
        Some(500) if too_large => CreateError::Invalid(message),
        Some(403) if is_namespace_terminating(&error) => CreateError::NamespaceTerminating(message),
        Some(403) => CreateError::Forbidden(message),
        _ => CreateError::Call(error),
    }
}

/// Cause set by the admission plug-in `NamespaceLifecycle`.
fn is_namespace_terminating(error: &CallError) -> bool {
    let details = error.status().and_then(|s| s.details.as_ref());
    let mut causes = details.into_iter().flat_map(|d| &d.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use testing::FakeApi;

    #[test]
    fn namespace_termination_differs_from_forbidden() {
        let rejected = |causes: serde_json::Value| {
            let details = json!({"name": "a", "kind": "pods", "causes": causes});
            let status =
                json!({"message": "no", "reason": "Forbidden", "code": 403, "details": details});
            let status = serde_json::from_value(status).unwrap();
            classify_error(CallError::Api(kube::Error::Api(Box::new(status))))
        };
        let terminating =
            json!([{"reason": "NamespaceTerminating", "message": "it is being terminated"}]);
        assert!(matches!(
            rejected(terminating),
            CreateError::NamespaceTerminating(_)
        ));
        assert!(matches!(rejected(json!([])), CreateError::Forbidden(_)));
    }

    #[tokio::test]
    async fn delete_owned_keeps_foreign_objects() {
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
