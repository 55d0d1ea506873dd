//! Input of the builders, and the metadata that all owned objects share.

use std::collections::BTreeMap;

use crds::contract::identity::IdentityKey;
use crds::{Sandbox, names};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;

use crate::config::ControllerConfig;
use shared::index::Entry;

/// Input of every builder.
#[derive(Debug, Clone, Copy)]
pub struct BuildContext<'a> {
    /// The object, its spec completed from the pool.
    pub entry: &'a Entry,
    pub config: &'a ControllerConfig,
    /// Public key by which supervisors verify control calls.
    pub control_key: &'a str,
    /// Key by which Pods prove that they belong to this sandbox.
    pub identity: IdentityKey,
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
}

impl BuildContext<'_> {
    /// Returns whether the supervisor runs a command. Otherwise the entrypoint of the image runs.
    pub(super) fn is_supervised(&self) -> bool {
        self.entry.spec.command.is_some()
    }
}

/// Metadata of an owned object.
pub(super) fn metadata(entry: &Entry, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(entry.key.namespace.clone()),
        labels: Some(names::labels(&entry.key.name, &entry.runtime_id)),
        annotations: None::<BTreeMap<_, _>>,
        owner_references: Some(vec![owner(entry)]),
        ..ObjectMeta::default()
    }
}

fn owner(entry: &Entry) -> OwnerReference {
    OwnerReference {
        api_version: Sandbox::api_version(&()).into_owned(),
        kind: Sandbox::kind(&()).into_owned(),
        name: entry.key.name.clone(),
        uid: entry.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
