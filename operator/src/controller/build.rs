//! Pure builders: from a Sandbox and the configuration to the objects that make it real.

pub mod claim;
pub mod command;
pub mod container;
mod injection;
pub mod merge;
pub mod pod;
pub mod policy;
pub mod profile;
pub mod resources;
pub mod secret;
#[cfg(test)]
pub(crate) mod tests;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::config::ControllerConfig;
use crate::index::Entry;
use crds::{Sandbox, names};
use kube::Resource as _;

/// What every builder needs.
#[derive(Debug, Clone, Copy)]
pub struct Blueprint<'a> {
    /// The object; its spec has what the pool supplies.
    pub entry: &'a Entry,
    pub config: &'a ControllerConfig,
    /// Public key that supervisors verify control calls with.
    pub control_key: &'a str,
}

/// Why an object cannot be built: all are faults of the spec.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("spec.image is missing")]
    NoImage,
    #[error("{path}: {detail}")]
    Invalid { path: String, detail: String },
}

impl Blueprint<'_> {
    /// Whether the supervisor runs a command. Otherwise the image's own entrypoint runs.
    fn supervised(&self) -> bool {
        self.entry.spec.command.is_some()
    }
}

impl BuildError {
    fn at(path: impl Into<String>, detail: impl std::fmt::Display) -> Self {
        Self::Invalid {
            path: path.into(),
            detail: detail.to_string(),
        }
    }

    /// A fault below `path`.
    fn within(path: String, fault: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let place = fault.path().to_string();
        match place.as_str() {
            "." => Self::at(path, fault.inner()),
            place => Self::at(format!("{path}.{place}"), fault.inner()),
        }
    }
}

/// Metadata of a child: its name, and whose it is.
fn metadata(entry: &Entry, name: String) -> ObjectMeta {
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
