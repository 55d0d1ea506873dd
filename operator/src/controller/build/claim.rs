//! The volume claim of a workspace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};

use super::{Blueprint, metadata};
use crate::controller::build::resources::quantity;
use crds::names;

/// The claim; `None` for a sandbox without a workspace volume.
pub fn claim(blueprint: &Blueprint<'_>) -> Option<PersistentVolumeClaim> {
    let entry = blueprint.entry;
    let workspace = entry.spec.workspace.as_ref()?;
    let size = BTreeMap::from([("storage".to_owned(), quantity(&workspace.size))]);
    Some(PersistentVolumeClaim {
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
    })
}
