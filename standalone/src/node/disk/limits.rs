//! Limits of a Pod, and the messages of its eviction. Order and wording are those of the kubelet,
//! which has no limit for claims.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::shortage::Shortage;
use crate::node::capacity::limit;

const RESOURCE: &str = "ephemeral-storage";

/// Bytes that a Pod uses.
#[derive(Debug, Default)]
pub(super) struct PodUsage {
    /// Writable layers with logs, by container.
    pub containers: Vec<(String, u64)>,
    pub volumes: Vec<VolumeUsage>,
}

#[derive(Debug)]
pub(super) struct VolumeUsage {
    pub name: String,
    pub kind: VolumeKind,
    pub used: u64,
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumeKind {
    EmptyDir,
    Memory,
    Claim,
    /// Also files outside of the volume, in a root that is kept with it.
    ClaimWithRoot,
}

impl PodUsage {
    /// Writable layers, logs and volumes of some kinds.
    fn sum(&self, is_counted: impl Fn(VolumeKind) -> bool) -> u64 {
        let containers = self.containers.iter().map(|(_, used)| *used);
        let volumes = self.volumes.iter().filter(|volume| is_counted(volume.kind));
        let all = containers.chain(volumes.map(|volume| volume.used));
        all.fold(0, u64::saturating_add)
    }

    pub(super) fn on_disk(&self) -> u64 {
        self.sum(|kind| kind != VolumeKind::Memory)
    }

    fn of(&self, container: &str) -> u64 {
        let mut containers = self.containers.iter();
        let found = containers.find(|(name, _)| name == container);
        found.map_or(0, |(_, used)| *used)
    }
}

impl VolumeUsage {
    fn exceeded(&self) -> Option<String> {
        let limit = binary(self.limit.filter(|limit| self.used > *limit)?);
        let kind = match self.kind {
            VolumeKind::EmptyDir | VolumeKind::Memory => "EmptyDir",
            VolumeKind::Claim | VolumeKind::ClaimWithRoot => "PersistentVolumeClaim",
        };
        let with = match self.kind {
            VolumeKind::ClaimWithRoot => " with the files outside the workspace",
            _ => "",
        };
        let name = &self.name;
        Some(format!(
            "Usage of {kind} volume {name:?}{with} exceeds the limit {limit:?}. "
        ))
    }
}

/// Message of the eviction if the Pod exceeds a limit. `default` is the limit of a Pod whose
/// containers have none; 0 is no limit.
pub(super) fn exceeded(pod: &PodSpec, usage: &PodUsage, default: u64) -> Option<String> {
    let volume = usage.volumes.iter().find_map(VolumeUsage::exceeded);
    let total = || total(pod, usage, default);
    let container = || {
        let mut containers = pod.containers.iter();
        containers.find_map(|container| {
            let (name, limit) = (&container.name, storage_limit(container)?);
            let limit = (usage.of(name) > limit).then(|| binary(limit))?;
            let text = "exceeded its local ephemeral storage limit";
            Some(format!("Container {name} {text} {limit:?}. "))
        })
    };
    volume.or_else(total).or_else(container)
}

fn total(pod: &PodSpec, usage: &PodUsage, default: u64) -> Option<String> {
    let main = pod.containers.iter().filter_map(storage_limit).sum::<u64>();
    let init = pod.init_containers.iter().flatten();
    let limit = init.filter_map(storage_limit).fold(main, u64::max);
    let limit = if limit == 0 { default } else { limit };
    let used = usage.sum(|kind| kind == VolumeKind::EmptyDir);
    (limit > 0 && used > limit).then(|| {
        let text = "Pod ephemeral local storage usage exceeds the total limit of containers";
        format!("{text} {}. ", binary(limit))
    })
}

fn storage_limit(container: &Container) -> Option<u64> {
    limit(container, RESOURCE, 1.0).filter(|limit| *limit > 0)
}

/// Message of the eviction from a disk that is nearly full.
pub(super) fn shortage_message(short: Shortage) -> String {
    let (threshold, available) = (binary(short.threshold), binary(short.available));
    let text = format!("The node was low on resource: {RESOURCE}. ");
    text + &format!("Threshold quantity: {threshold}, available: {available}. ")
}

/// A quantity with the largest binary unit that needs no fraction.
fn binary(bytes: u64) -> String {
    let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
    let mut units = units.into_iter();
    let unit = units.find(|(bits, _)| bytes > 0 && bytes.is_multiple_of(1 << bits));
    let (bits, unit) = unit.unwrap_or((0, ""));
    format!("{}{unit}", bytes >> bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MIB: u64 = 1 << 20;

    #[test]
    fn message_names_the_exceeded_limit_as_the_kubelet_does() {
        use VolumeKind::{Claim, ClaimWithRoot, EmptyDir, Memory};
        let volume = |kind, used| VolumeUsage {
            name: "v".into(),
            kind,
            used,
            limit: Some(10 * MIB),
        };
        let usage = |a, volumes| PodUsage {
            containers: vec![("a".into(), a), ("b".into(), MIB)],
            volumes,
        };
        let directory = "Usage of EmptyDir volume \"v\" exceeds the limit \"10Mi\". ";
        let claim = "Usage of PersistentVolumeClaim volume \"v\" exceeds the limit \"10Mi\". ";
        let root = claim.replace("\"v\"", "\"v\" with the files outside the workspace");
        let pod = "Pod ephemeral local storage usage exceeds the total limit of containers 30Mi. ";
        let default = pod.replace("30Mi", "25Mi");
        let container = "Container a exceeded its local ephemeral storage limit \"20Mi\". ";
        let (allowed, full) = (10 * MIB, 10 * MIB + 1);
        let (set, unset) = (["20Mi", "10Mi"], ["0", "0"]);
        for (limits, a, volumes, expected) in [
            (set, 0, vec![volume(EmptyDir, full)], Some(directory)),
            (set, 0, vec![volume(Memory, full)], Some(directory)),
            (set, 0, vec![volume(Claim, full)], Some(claim)),
            (set, 0, vec![volume(ClaimWithRoot, full)], Some(&*root)),
            (set, 20 * MIB, vec![volume(ClaimWithRoot, allowed)], None),
            (set, 20 * MIB, vec![volume(EmptyDir, allowed)], Some(pod)),
            (set, 20 * MIB, vec![volume(Claim, allowed)], None),
            (set, 20 * MIB, vec![volume(Memory, allowed)], None),
            (set, 20 * MIB + 1, vec![], Some(container)),
            (unset, 24 * MIB, vec![], None),
            (unset, 24 * MIB + 1, vec![], Some(&*default)),
            (unset, u64::MAX, vec![volume(EmptyDir, 1)], Some(&*default)),
        ] {
            let limited =
                |name, limit| json!({"name": name, "resources": {"limits": {RESOURCE: limit}}});
            let containers = [limited("a", limits[0]), limited("b", limits[1])];
            let pod = serde_json::from_value(json!({"containers": containers})).unwrap();
            let message = exceeded(&pod, &usage(a, volumes), 25 * MIB);
            assert_eq!(message.as_deref(), expected, "{limits:?} {a}");
        }
    }

    #[test]
    fn shortage_message_has_threshold_and_free_space() {
        let short = Shortage {
            threshold: 4 << 30,
            available: 1000,
        };
        let message = "The node was low on resource: ephemeral-storage. Threshold quantity: 4Gi, \
            available: 1000. ";
        assert_eq!(shortage_message(short), message);
    }
}
