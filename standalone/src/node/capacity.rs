//! Capacity of this machine: the Node object, and the Pods that it cannot hold.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node as NodeObject, PodSpec};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::kubernetes::error_text;
use operator::quantity::whole;
use serde_json::{Value, json};

use super::devices::Devices;
use super::{NODE_NAME, Node};

/// Container limits up to this always fit: they follow from the operator's defaults (2 CPUs and
/// 2 GiB, times at most 8). A larger limit was asked for.
const ORDINARY: Resources = Resources {
    cpu: 16_000,
    memory: 16 << 30,
};
/// Addresses of a node.
const MAX_PODS: u32 = 1021;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Thousandths of a CPU, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    pub cpu: u64,
    pub memory: u64,
}

/// A limit of a container in units of `1 / parts`.
pub(crate) fn limit(container: &Container, name: &str, parts: f64) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    whole(&limits.get(name)?.0, parts)
}

fn request(container: &Container, name: &str, parts: f64) -> Option<u64> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    whole(&requests.get(name)?.0, parts)
}

impl Resources {
    pub(crate) fn of_machine() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = memory.lines().find_map(|line| {
            let kilobytes = line.strip_prefix("MemTotal:")?.strip_suffix("kB")?;
            kilobytes.trim().parse::<u64>().ok()
        });
        Self {
            cpu: cpus as u64 * 1000,
            memory: memory.unwrap_or_default() * 1024,
        }
    }

    fn of(container: &Container) -> Self {
        let need = |name, parts, ordinary| {
            let limit = limit(container, name, parts).filter(|limit| *limit > ordinary);
            let need = limit.max(request(container, name, parts));
            need.unwrap_or_default()
        };
        Self {
            cpu: need("cpu", 1000.0, ORDINARY.cpu),
            memory: need("memory", 1.0, ORDINARY.memory),
        }
    }

    /// Message of a scheduler if the machine can never hold the Pod.
    pub(crate) fn rejection(self, pod: &PodSpec) -> Option<String> {
        let mut need = Self::default();
        for container in pod.containers.iter().map(Self::of) {
            need.cpu += container.cpu;
            need.memory += container.memory;
        }
        for container in pod.init_containers.iter().flatten().map(Self::of) {
            need.cpu = need.cpu.max(container.cpu);
            need.memory = need.memory.max(container.memory);
        }
        let lacks = [
            (need.cpu > self.cpu).then_some("1 Insufficient cpu"),
            (need.memory > self.memory).then_some("1 Insufficient memory"),
        ];
        let lacks: Vec<_> = lacks.into_iter().flatten().collect();
        let message = format!("0/1 nodes are available: {}.", lacks.join(", "));
        (!lacks.is_empty()).then_some(message)
    }
}

/// Publishes the Node object, until it succeeds.
pub(crate) async fn publish(node: &Node) {
    while let Err(error) = try_publish(&node.client, node.capacity, &node.devices).await {
        let error = error_text::error_text(&error);
        tracing::warn!(error, "cannot publish the Node object");
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn try_publish(client: &Client, machine: Resources, devices: &Devices) -> kube::Result<()> {
    let nodes = Api::<NodeObject>::all(client.clone());
    let known = nodes.get_opt(NODE_NAME).await?;
    if known.is_none() {
        let labels = [
            ("kubernetes.io/hostname", NODE_NAME),
            ("kubernetes.io/os", "linux"),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut node = NodeObject::default();
        node.metadata.name = Some(NODE_NAME.to_owned());
        node.metadata.labels = Some(labels.into());
        nodes.create(&PostParams::default(), &node).await?;
    }
    let mut capacity = json!({
        "cpu": format!("{}m", machine.cpu), "memory": machine.memory.to_string(),
        "pods": MAX_PODS.to_string(),
    });
    // Kinds of devices that an earlier run had are removed by null.
    let earlier = known
        .and_then(|node| node.status?.capacity)
        .unwrap_or_default();
    for name in earlier.keys().filter(|name| name.contains('/')) {
        capacity[name] = Value::Null;
    }
    for (kind, count) in devices.capacity() {
        capacity[kind] = json!(count.to_string());
    }
    let now = Timestamp::now().round(jiff::Unit::Second);
    let now = now.unwrap_or_default();
    let status = json!({"status": {
        "capacity": capacity, "allocatable": capacity,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "ProcessNodeReady",
            "message": "the process node is running",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "architecture": std::env::consts::ARCH, "operatingSystem": "linux",
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-standalone"),
            "containerRuntimeVersion": "bubblewrap", "kubeProxyVersion": "", "osImage": "",
            "kernelVersion": "", "machineID": "", "systemUUID": "", "bootID": "",
        },
    }});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
    let patched = nodes.patch_status(NODE_NAME, &parameters, &patch);
    patched.await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_beyond_the_machine_is_rejected_as_by_a_scheduler() {
        let machine = Resources {
            cpu: 2000,
            memory: 4 << 30,
        };
        let both = Some("1 Insufficient cpu, 1 Insufficient memory");
        let cpu = Some("1 Insufficient cpu");
        for (resources, lacks) in [
            (json!({"limits": {"cpu": "500", "memory": "900Gi"}}), both),
            (json!({"requests": {"cpu": "2001m"}}), cpu),
            (json!({"requests": {"memory": "4Gi"}}), None),
            (json!({"requests": {"cpu": "2"}}), None),
            (json!({"limits": {"cpu": "16", "memory": "16Gi"}}), None),
            (json!({}), None),
        ] {
            let container = json!({"name": "c", "resources": resources});
            let pod = serde_json::from_value(json!({"containers": [container]})).unwrap();
            let message = lacks.map(|lacks| format!("0/1 nodes are available: {lacks}."));
            assert_eq!(machine.rejection(&pod), message, "{resources}");
        }
    }
}
