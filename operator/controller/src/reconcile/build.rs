//! Pure builders of the owned objects (Pod, PVC, Secret) from a Sandbox and the configuration.

pub mod command;
mod container;
pub mod environment_secret;
pub(crate) mod init_container;
pub mod persistence;
pub mod pod;
mod pod_template;
pub(crate) mod runtime_class;
mod security_profile;
mod template_policy;
#[cfg(test)]
mod tests;
pub mod volumes;

use crds::contract::persistence::PersistenceLevel;
use crds::{Sandbox, SandboxPool, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use crate::config::{ControllerConfig, Deadlines};
use crate::facts::SourceVolume;
use crate::pod_features::PodFeatures;
use shared::index::Entry;
use shared::keys::{KeySet, Keys};
use shared::resources::ResourceError;

/// Input of the builders and of the init message.
#[derive(Debug, Clone, Copy)]
pub struct BuildContext<'a> {
    /// The object, its spec completed from the pool.
    pub entry: &'a Entry,
    pub config: &'a ControllerConfig,
    pub keys: &'a Keys,
    pub url: &'a str,
    pub deadlines: Deadlines,
    /// Level of persistence, decided once, so that volume and Pod agree.
    pub level: PersistenceLevel,
    /// Pool whose warm Pod is built: the entry stands for the Pod then. `None`: a sandbox.
    pub pool: Option<&'a PoolRef>,
    pub features: PodFeatures,
    /// Volume of the snapshot that the Pod begins with.
    pub source: Option<&'a SourceVolume>,
}

/// Name and uid of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRef {
    pub name: String,
    pub uid: String,
}

/// Parameters that differ between the Pods of one sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct PodParams<'a> {
    /// Restarts of the command before this Pod.
    pub restarts: u32,
    /// Use the default runtime class: the cluster lacks the one in the spec.
    pub default_class: bool,
    /// Environment Secret of a sandbox without a command.
    pub secret: Option<&'a Secret>,
    /// Pool that the sandbox fits and that had no ready Pod for it.
    pub missed_pool: Option<&'a str>,
    /// Begin of the pause in which the Pod is created, ahead of the resume.
    pub created_in_pause: Option<Timestamp>,
    /// Request little until the resume.
    pub is_small: bool,
}

/// Fault of the spec that keeps an object from being built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("spec.image is missing")]
    NoImage,
    #[error("{path}: {detail}")]
    Invalid { path: String, detail: String },
}

impl BuildContext<'_> {
    /// Returns whether the supervisor runs a command. Otherwise the entrypoint of the image runs.
    fn is_supervised(&self) -> bool {
        self.entry.spec.command.is_some()
    }

    /// Keys of the sandbox.
    pub fn key_set(&self) -> &KeySet {
        self.keys.of(self.entry.created_at)
    }

    /// Metadata of an owned object.
    fn metadata(&self, name: String) -> ObjectMeta {
        let entry = self.entry;
        let (owner, labels) = match self.pool {
            Some(pool) => (pool_owner(pool), names::warm_labels(&pool.name)),
            None => (
                sandbox_owner(entry),
                names::labels(&entry.key.name, &entry.runtime_id),
            ),
        };
        ObjectMeta {
            name: Some(name),
            namespace: Some(entry.key.namespace.clone()),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        }
    }
}

/// Owner reference of the objects of a sandbox.
pub(crate) fn sandbox_owner(entry: &Entry) -> OwnerReference {
    controller_reference::<Sandbox>(&entry.key.name, &entry.uid)
}

/// Owner reference of the objects that end with a Pod.
pub(crate) fn pod_owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }
}

pub(crate) fn pool_owner(pool: &PoolRef) -> OwnerReference {
    controller_reference::<SandboxPool>(&pool.name, &pool.uid)
}

fn controller_reference<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

impl From<ResourceError> for BuildError {
    fn from(ResourceError { path, detail }: ResourceError) -> Self {
        Self::Invalid { path, detail }
    }
}

impl BuildError {
    pub(crate) fn at(path: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Invalid {
            path: path.into(),
            detail: detail.to_string(),
        }
    }

    /// Deserialization error below `path`.
    fn at_path(path: String, fault: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let field = fault.path().to_string();
        match field.as_str() {
            "." => Self::at(path, fault.inner()),
            field => Self::at(format!("{path}.{field}"), fault.inner()),
        }
    }
}
