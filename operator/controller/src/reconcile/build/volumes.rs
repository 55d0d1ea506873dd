//! Volumes of the Pod, their mounts in the sandbox container, and the PVC of the workspace.

use std::collections::BTreeMap;

use crds::contract::path;
use crds::int_or_string::IntOrString;
use crds::sandbox::SandboxSpec;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, ImageVolumeSource, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
    VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::persistence::{STATE_DIR, WORKSPACE_DIR, has_state_volume};
use super::{BuildContext, BuildError};
use crate::config::{ConfigMapMount, Injection};
use crate::facts::SourceVolume;
use shared::quantity::value;
use shared::resources::quantity;

/// Volume of the executor binary.
pub(crate) const BIN: &str = "sandbox-bin";
/// Volume of the supervisor state.
pub(super) const STATE: &str = "sandbox-state";
/// Volume of the workspace.
pub(super) const WORK: &str = "workspace";

/// Volume with the snapshot that the sandbox begins with.
const SNAPSHOT: &str = "snapshot";
/// Directory of the state that has the snapshots, by their uids.
const SNAPSHOTS_DIR: &str = "snapshots";

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

/// The PVC of the workspace; `None` for a sandbox without one.
pub fn claim(context: &BuildContext<'_>) -> Result<Option<PersistentVolumeClaim>, BuildError> {
    let entry = context.entry;
    let Some(workspace) = &entry.spec.workspace else {
        return Ok(None);
    };
    let requests = BTreeMap::from([("storage".to_owned(), checked_size(&workspace.size)?)]);
    Ok(Some(PersistentVolumeClaim {
        metadata: context.metadata(entry.workspace_claim()),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: workspace.storage_class_name.clone(),
            resources: Some(VolumeResourceRequirements {
                requests: Some(requests),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }))
}

fn checked_size(size: &IntOrString) -> Result<Quantity, BuildError> {
    let size = quantity(size);
    if value(&size.0).is_some_and(|bytes| bytes >= 1.0) {
        return Ok(size);
    }
    let fault = format!("{:?} must be a quantity such as 10Gi", size.0);
    Err(BuildError::at("spec.workspace.size", fault))
}

/// All volumes of the Pod.
pub(super) fn volumes(context: &BuildContext<'_>) -> Vec<Volume> {
    let mut all = vec![workspace(context)];
    all.extend(context.source.map(snapshot));
    if context.is_supervised() {
        all.push(executor(context));
        all.push(state());
    }
    let config_maps = context.config.pods.config_maps.iter().enumerate();
    all.extend(config_maps.map(|(at, map)| config_map(at, map)));
    all
}

/// All mounts of the sandbox container.
pub(super) fn mounts(context: &BuildContext<'_>) -> Vec<VolumeMount> {
    let mut all = vec![workspace_mount(context)];
    if context.persistence().is_some() {
        all.push(VolumeMount {
            sub_path: Some(STATE_DIR.into()),
            ..mount(WORK, path::STORE_DIR)
        });
    }
    if let Some(source) = context.source {
        all.push(VolumeMount {
            sub_path: Some(format!(
                "{STATE_DIR}/{SNAPSHOTS_DIR}/{}",
                source.snapshot.uid
            )),
            ..read_only(SNAPSHOT, path::SNAPSHOT_DIR)
        });
    }
    if context.is_supervised() {
        all.push(read_only(BIN, path::BIN_DIR));
        all.push(mount(STATE, path::STATE_DIR));
    }
    let config_maps = context.config.pods.config_maps.iter().enumerate();
    all.extend(config_maps.map(|(at, map)| read_only(&config_name(at), &map.path)));
    all
}

/// Mount of the workspace, which is a directory of a volume that has state as well.
fn workspace_mount(context: &BuildContext<'_>) -> VolumeMount {
    let entry = context.entry;
    let shares = entry.spec.workspace.is_some() && has_state_volume(entry, context.level);
    VolumeMount {
        sub_path: shares.then(|| WORKSPACE_DIR.to_owned()),
        ..mount(WORK, workspace_path(&entry.spec))
    }
}

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

pub(crate) fn read_only(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        read_only: Some(true),
        ..mount(name, path)
    }
}

fn workspace(context: &BuildContext<'_>) -> Volume {
    let entry = context.entry;
    if entry.spec.workspace.is_none() {
        return empty(WORK, EmptyDirVolumeSource::default());
    }
    Volume {
        name: WORK.into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: entry.workspace_claim(),
            read_only: None,
        }),
        ..Volume::default()
    }
}

/// Volume of the sandbox that the snapshot is of.
fn snapshot(source: &SourceVolume) -> Volume {
    Volume {
        name: SNAPSHOT.into(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: source.claim.clone(),
            read_only: Some(true),
        }),
        ..Volume::default()
    }
}

fn executor(context: &BuildContext<'_>) -> Volume {
    match context.features.injection {
        Injection::InitContainer => empty(BIN, EmptyDirVolumeSource::default()),
        Injection::ImageVolume | Injection::Auto => image(&context.config.executor_image),
    }
}

/// Volume with the files of the executor image.
pub(crate) fn image(reference: &str) -> Volume {
    Volume {
        name: BIN.into(),
        image: Some(ImageVolumeSource {
            reference: Some(reference.to_owned()),
            pull_policy: Some("IfNotPresent".into()),
        }),
        ..Volume::default()
    }
}

fn state() -> Volume {
    let source = EmptyDirVolumeSource {
        medium: Some("Memory".into()),
        size_limit: Some(Quantity("16Mi".into())),
        ..EmptyDirVolumeSource::default()
    };
    empty(STATE, source)
}

fn config_map(at: usize, map: &ConfigMapMount) -> Volume {
    Volume {
        name: config_name(at),
        config_map: Some(ConfigMapVolumeSource {
            name: map.name.clone(),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn config_name(at: usize) -> String {
    format!("config-{at}")
}

fn empty(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(source),
        ..Volume::default()
    }
}
