//! Volumes of the Pod and their mounts in the sandbox container.

use crds::contract::path;
use crds::names;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, EmptyDirVolumeSource, ImageVolumeSource,
    PersistentVolumeClaimVolumeSource, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::context::BuildContext;
use super::workspace_claim::workspace_path;
use crate::config::{ConfigMapMount, Injection};

/// Volume of the executor binary.
pub(super) const BIN: &str = "sandbox-bin";
/// Volume of the supervisor state.
pub(super) const STATE: &str = "sandbox-state";
/// Volume of the workspace.
pub(super) const WORK: &str = "workspace";

/// All volumes of the Pod.
pub(super) fn volumes(context: &BuildContext<'_>) -> Vec<Volume> {
    let mut all = vec![workspace(context)];
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
    let mut all = vec![mount(WORK, workspace_path(&context.entry.spec))];
    if context.is_supervised() {
        all.push(read_only(BIN, path::BIN_DIR));
        all.push(mount(STATE, path::STATE_DIR));
    }
    let config_maps = context.config.pods.config_maps.iter().enumerate();
    all.extend(config_maps.map(|(at, map)| read_only(&config_name(at), &map.path)));
    all
}

pub(super) fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        ..VolumeMount::default()
    }
}

fn read_only(name: &str, path: &str) -> VolumeMount {
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
            claim_name: names::workspace_claim(&entry.key.name),
            read_only: None,
        }),
        ..Volume::default()
    }
}

fn executor(context: &BuildContext<'_>) -> Volume {
    match context.config.pods.injection {
        Injection::InitContainer => empty(BIN, EmptyDirVolumeSource::default()),
        Injection::ImageVolume => Volume {
            name: BIN.into(),
            image: Some(ImageVolumeSource {
                reference: Some(context.config.executor_image.clone()),
                pull_policy: Some("IfNotPresent".into()),
            }),
            ..Volume::default()
        },
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
