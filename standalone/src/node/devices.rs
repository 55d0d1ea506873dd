//! Devices of this machine that Pods ask for as resources, such as `nvidia.com/gpu`: each device of a
//! CDI specification is one unit of the resource that its kind names. A device belongs to one Pod at a
//! time.

mod cdi;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use operator::quantity::whole;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use self::cdi::CdiSpecs;
pub(crate) use self::cdi::Device;

/// Devices of a node, by kind.
#[derive(Debug)]
pub(crate) struct Devices {
    specs: CdiSpecs,
    /// Kind and name of the devices that belong to a Pod.
    taken: Mutex<BTreeSet<(String, String)>>,
    freed: Notify,
}

/// Devices of one Pod, which are free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    owner: Arc<Devices>,
    devices: BTreeMap<String, Vec<Arc<Device>>>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut taken = self.owner.taken.lock();
        for (kind, devices) in &self.devices {
            for device in devices {
                taken.remove(&(kind.clone(), device.name.clone()));
            }
        }
        drop(taken);
        self.owner.freed.notify_waiters();
    }
}

impl Devices {
    /// Reads the CDI specifications of these directories; those of the last one come first.
    pub(crate) fn read(directories: &[PathBuf]) -> Arc<Self> {
        Arc::new(Self {
            specs: CdiSpecs::read(directories),
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Number of devices of each kind.
    pub(crate) fn capacity(&self) -> impl Iterator<Item = (&str, usize)> {
        let kinds = self.specs.kinds.iter();
        kinds.map(|(kind, devices)| (kind.as_str(), devices.len()))
    }

    /// Completes when a Pod has given back devices after the call.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Takes the devices that a Pod asks for, or none and says in the words of a scheduler why.
    pub(crate) fn allocate(self: &Arc<Self>, pod: &PodSpec) -> Result<Allocation, String> {
        let mut found = BTreeMap::new();
        let (mut lacks, mut hints) = (Vec::new(), Vec::new());
        let mut taken = self.taken.lock();
        for (kind, count) in needs(pod) {
            let devices = self.specs.kinds.get(&kind).into_iter().flatten();
            let is_free =
                |device: &&Arc<Device>| !taken.contains(&(kind.clone(), device.name.clone()));
            let free: Vec<_> = devices.filter(is_free).take(count).cloned().collect();
            if free.len() < count {
                lacks.push(format!("1 Insufficient {kind}"));
                hints.extend(self.specs.why_unknown(&kind));
            }
            found.insert(kind, free);
        }
        if !lacks.is_empty() {
            let lacks = format!("0/1 nodes are available: {}.", lacks.join(", "));
            let sentences: Vec<_> = std::iter::once(lacks).chain(hints).collect();
            return Err(sentences.join(" "));
        }
        for (kind, devices) in &found {
            let names = devices.iter().map(|device| device.name.clone());
            taken.extend(names.map(|name| (kind.clone(), name)));
        }
        Ok(Allocation {
            owner: Arc::clone(self),
            devices: found,
        })
    }
}

impl Allocation {
    /// Devices of one container. Init containers use those of the others, before them.
    pub(crate) fn of_container(&self, pod: &PodSpec, name: &str) -> Vec<Arc<Device>> {
        let mut found = Vec::new();
        for (kind, devices) in &self.devices {
            let count = |container: &Container| wanted(container).remove(kind).unwrap_or_default();
            let earlier = pod.containers.iter().take_while(|other| other.name != name);
            let own = pod.containers.iter().find(|own| own.name == name);
            let init = pod.init_containers.iter().flatten();
            let (first, number) = match own {
                Some(own) => (earlier.map(count).sum(), count(own)),
                None => (0, init.filter(|own| own.name == name).map(count).sum()),
            };
            found.extend(devices.iter().skip(first).take(number).cloned());
        }
        found
    }
}

/// Devices that a Pod needs at a time, by kind.
fn needs(pod: &PodSpec) -> BTreeMap<String, usize> {
    let mut needs = BTreeMap::new();
    for (kind, count) in pod.containers.iter().flat_map(wanted) {
        *needs.entry(kind).or_default() += count;
    }
    for (kind, count) in pod.init_containers.iter().flatten().flat_map(wanted) {
        let need: &mut usize = needs.entry(kind).or_default();
        *need = count.max(*need);
    }
    needs
}

/// Limits of a container that are no resources of Kubernetes itself: those have no domain, or one of
/// Kubernetes.
fn wanted(container: &Container) -> BTreeMap<String, usize> {
    let resources = container.resources.iter();
    let limits = resources.flat_map(|resources| resources.limits.iter().flatten());
    let devices = limits.filter_map(|(name, quantity)| {
        let (domain, _) = name.split_once('/')?;
        let count = usize::try_from(whole(&quantity.0, 1.0)?).ok()?;
        let is_foreign = domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io");
        (is_foreign && count > 0).then(|| (name.clone(), count))
    });
    devices.collect()
}

#[cfg(test)]
mod tests;
