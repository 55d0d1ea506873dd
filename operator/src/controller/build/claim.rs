//! The volume claim of a workspace.

use std::collections::BTreeMap;

use crds::amount::IntOrString;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::resources::{quantity, value};
use super::{Blueprint, BuildError, metadata};
use crds::names;

/// The claim; `None` for a sandbox without a workspace volume.
pub fn claim(blueprint: &Blueprint<'_>) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    let entry = blueprint.entry;
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
    let fault = format!("{:?} is no size, as 10Gi is one", size.0);
    Err(BuildError::at("spec.workspace.size", fault))
}
