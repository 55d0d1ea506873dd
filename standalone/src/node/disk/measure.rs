//! Measurement of Pods and the decision to evict, on a thread that may block.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Pod, Volume};
use operator::quantity::whole;
use tokio_util::sync::CancellationToken;

use super::limits::{PodUsage, VolumeKind, VolumeUsage, exceeded, shortage_message};
use super::shortage::shortage;
use super::usage::usage;
use crate::node::Node;
use crate::node::kept_root::{is_kept, recorded_bytes};
use crate::node::volumes::empty_dir;

/// State that rounds pass on.
#[derive(Debug)]
pub(super) struct Measurement {
    stop: CancellationToken,
    /// Sizes of unpacked images, of which containers have copies.
    images: BTreeMap<PathBuf, u64>,
    /// Usage of claims by uid in the round before. A claim that is too full evicts only if it has
    /// grown, so that the next Pod can delete files.
    claims: BTreeMap<String, u64>,
}

impl Measurement {
    pub(super) fn new(stop: CancellationToken) -> Self {
        let (images, claims) = Default::default();
        Self {
            stop,
            images,
            claims,
        }
    }

    /// Measures all Pods one after the other, and evicts those above a limit, and the largest one
    /// if the disk is nearly full. True in the last case.
    pub(super) fn round(&mut self, node: &Node) -> bool {
        let pods = node.measured.current();
        let claims = node.claims.uids();
        self.claims.retain(|uid, _| claims.contains(uid));
        let mut usages = Vec::new();
        for (uid, pod) in pods {
            let usage = self.of(node, &uid, &pod);
            if self.stop.is_cancelled() {
                return false;
            }
            let spec = pod.spec.clone().unwrap_or_default();
            match exceeded(&spec, &usage, node.config.pod_disk_limit) {
                Some(message) => node.measured.evict(&uid, message),
                None => usages.push((uid, usage.on_disk())),
            }
        }
        let usages = usages.into_iter().filter(|(_, used)| *used > 0);
        let largest = usages.max_by_key(|(_, used)| *used);
        let Some(((uid, _), short)) = largest.zip(shortage(&node.paths.pods())) else {
            return false;
        };
        node.measured.evict(&uid, shortage_message(short));
        true
    }

    fn of(&mut self, node: &Node, uid: &str, pod: &Pod) -> PodUsage {
        let spec = pod.spec.clone().unwrap_or_default();
        let containers = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        let containers = containers.map(|container| {
            let name = container.name.clone();
            let root = usage(&node.paths.root(uid, &name), &self.stop);
            let logs = usage(&node.paths.logs(uid).join(&name), &self.stop);
            let image = container.image.as_deref().unwrap_or_default();
            let copied = node.config.images.unpacked(image);
            let copied = copied.filter(|_| !(node.user.is_root() && is_kept(&spec, container)));
            let image = copied.map_or(0, |image| {
                let known = self.images.entry(image.clone());
                *known.or_insert_with(|| usage(&image, &self.stop))
            });
            (name, root.saturating_sub(image).saturating_add(logs))
        });
        PodUsage {
            containers: containers.collect(),
            volumes: spec
                .volumes
                .iter()
                .flatten()
                .filter_map(|volume| self.volume(node, uid, pod, volume))
                .collect(),
        }
    }

    fn volume(
        &mut self,
        node: &Node,
        uid: &str,
        pod: &Pod,
        volume: &Volume,
    ) -> Option<VolumeUsage> {
        let name = volume.name.clone();
        if let Some(source) = &volume.empty_dir {
            let limit = source.size_limit.as_ref();
            let limit = limit.and_then(|limit| whole(&limit.0, 1.0));
            let directory = empty_dir(&node.paths, uid, &name, source);
            return Some(VolumeUsage {
                name,
                kind: match source.medium.as_deref() {
                    Some("Memory") => VolumeKind::Memory,
                    _ => VolumeKind::EmptyDir,
                },
                used: usage(&directory, &self.stop),
                limit: limit.filter(|limit| *limit > 0),
            });
        }
        let claim = volume.persistent_volume_claim.as_ref()?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (claim_uid, capacity) = node.claims.find(namespace, &claim.claim_name)?;
        let volumes = node.paths.volumes();
        let root = recorded_bytes(&volumes, &claim_uid, |path| usage(path, &self.stop));
        let used = usage(&volumes.join(&claim_uid), &self.stop);
        let used = used.saturating_add(root.unwrap_or_default());
        let before = self.claims.insert(claim_uid, used).unwrap_or_default();
        Some(VolumeUsage {
            name,
            kind: if root.is_some() {
                VolumeKind::ClaimWithRoot
            } else {
                VolumeKind::Claim
            },
            used,
            limit: capacity.map(|capacity| capacity.max(before)),
        })
    }
}
