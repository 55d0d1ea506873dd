//! The workspace: its PVC and its mount path.

use std::collections::BTreeMap;

use crds::int_or_string::IntOrString;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::context::{BuildContext, metadata};
use super::error::BuildError;
use super::resources::{quantity, value};

use crds::names;
use crds::sandbox::SandboxSpec;

/// Mount path of the workspace without one in the spec.
const DEFAULT_MOUNT_PATH: &str = "/workspace";

/// Mount path of the workspace.
pub fn workspace_path(spec: &SandboxSpec) -> &str {
    let own = spec
        .workspace
        .as_ref()
        .and_then(|w| w.mount_path.as_deref());
    own.unwrap_or(DEFAULT_MOUNT_PATH)
}

/// The PVC; `None` for a sandbox without a workspace volume.
pub fn claim(context: &BuildContext<'_>) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    let entry = context.entry;
    let Some(workspace) = &entry.spec.workspace else {
        return Ok(None);
    };
    let size = BTreeMap::from([("storage".to_owned(), checked(&workspace.size)?)]);
    Ok(Some(PersistentVolumeClaim {
        metadata: metadata(entry, names::workspace_claim(&entry.key.name)),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: workspace.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(size),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }))
}

fn checked(size: &IntOrString) -> Result<Quantity, BuildError> {
    let size = quantity(size);
    if value(&size.0).is_some_and(|bytes| bytes >= 1.0) {
        return Ok(size);
    }
    let fault = format!("{:?} must be a quantity such as 10Gi", size.0);
    Err(BuildError::at("spec.workspace.size", fault))
}
