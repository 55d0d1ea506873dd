//! Pod worker: prepares, initializes, runs, terminates and removes one Pod.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Node;
use super::container::{PreparedPod, group_name};
use super::container_runner::{ContainerRunner, RestartPolicy, StopSignals};
use super::devices::Allocation;
use super::network::NetworkError;
use super::paths::remove_tree;
use super::status::PodState;
use super::status_writer::StatusWriter;
use super::volumes::{VolumeError, provide};

const DEFAULT_GRACE: i64 = 30;
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Time between SIGTERM and SIGKILL when the node shuts down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(crate) struct WatchedPod {
    pub pod: Arc<Pod>,
    /// Deleted from the API.
    pub is_deleted: bool,
}

#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("Pod directory: {0}")]
    Io(#[from] std::io::Error),
}

/// Runs a Pod until it is deleted from the API or the node shuts down.
pub(crate) async fn run(
    node: Arc<Node>,
    mut observed: watch::Receiver<WatchedPod>,
    shutdown: CancellationToken,
) {
    let pod = Arc::clone(&observed.borrow_and_update().pod);
    let state = PodState::new(&pod, node.capacity);
    let worker = PodWorker {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        is_too_large: state.facts().unschedulable.is_some(),
        state,
        stop: StopSignals::default(),
        node,
        pod,
    };
    let has_ended = has_ended(&worker.pod);
    let devices = if has_ended { None } else { worker.allocate() };
    let mut status_writer = StatusWriter::new(&worker.node.client, &worker.pod, &worker.state);
    let ended = CancellationToken::new();
    let containers = async {
        if !has_ended {
            worker.containers(devices).await;
        }
        ended.cancel();
    };
    let reporting = async {
        if has_ended {
            return;
        }
        // Terminations are not reported at shutdown, so that the next start finds the Pod running.
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = status_writer.run(&ended) => {}
        }
    };
    let mut endings = observed.clone();
    let stopping = worker.forward_stop_signals(&mut endings, &shutdown, &ended);
    let resizing = worker.follow_resources(observed.clone());
    let resizing = ended.run_until_cancelled(resizing);
    tokio::join!(containers, reporting, stopping, resizing);
    if shutdown.is_cancelled() {
        return;
    }
    if worker.state.facts().evicted.is_some() {
        worker.free_disk().await;
    }
    let gone = tokio::select! {
        gone = until_deleted(&mut observed) => gone,
        () = shutdown.cancelled() => return,
    };
    if !gone {
        tokio::select! {
            () = status_writer.delete() => {}
            () = shutdown.cancelled() => return,
        }
    }
    worker.remove().await;
}

/// True if the Pod's phase is final.
fn has_ended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Waits for the deletion of the Pod; true if it is already gone.
async fn until_deleted(observed: &mut watch::Receiver<WatchedPod>) -> bool {
    let seen =
        observed.wait_for(|seen| seen.is_deleted || seen.pod.metadata.deletion_timestamp.is_some());
    seen.await.is_ok_and(|seen| seen.is_deleted)
}

struct PodWorker {
    node: Arc<Node>,
    pod: Arc<Pod>,
    uid: String,
    /// The machine can never hold the Pod.
    is_too_large: bool,
    state: PodState,
    stop: StopSignals,
}

impl PodWorker {
    /// Runs all containers until they terminate.
    async fn containers(&self, devices: Option<Allocation>) {
        let devices = tokio::select! {
            devices = self.await_devices(devices) => Arc::new(devices),
            () = self.stop.soft.cancelled() => return,
        };
        tokio::select! {
            prepared = self.prepare(&devices) => self.run_containers(&prepared).await,
            () = self.stop.soft.cancelled() => {}
        }
        self.state.update(|facts| facts.is_finished = true);
    }

    /// Takes the devices that the Pod asks for, if the machine can hold it.
    fn allocate(&self) -> Option<Allocation> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        // The capacity of the machine does not change.
        if self.is_too_large {
            return None;
        }
        let allocated = self.node.devices.allocate(&spec);
        let lack = allocated.as_ref().err().cloned();
        if lack != self.state.facts().unschedulable {
            self.state.update(|facts| facts.unschedulable = lack);
        }
        allocated.ok()
    }

    /// Waits until devices are free that the Pod asks for.
    async fn await_devices(&self, first: Option<Allocation>) -> Allocation {
        let mut devices = first;
        loop {
            let mut freed = pin!(self.node.devices.freed());
            freed.as_mut().enable();
            if let Some(devices) = devices.take().or_else(|| self.allocate()) {
                return devices;
            }
            freed.await;
        }
    }

    /// Runs the init containers one after the other and then the others together.
    async fn run_containers(&self, pod: &PreparedPod) {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let policy = RestartPolicy::of(spec.restart_policy.as_deref());
        let runner = |(number, container), policy| ContainerRunner {
            pod,
            state: &self.state,
            number,
            container,
            policy,
            stop: &self.stop,
        };
        let init = spec.init_containers.unwrap_or_default();
        for numbered in init.iter().enumerate() {
            if !runner(numbered, policy.for_init()).run().await {
                return;
            }
        }
        if !self.stop.soft.is_cancelled() {
            let numbered = (init.len()..).zip(&spec.containers);
            join_all(numbered.map(|numbered| runner(numbered, policy).run())).await;
        }
    }

    /// Prepares network and volumes, with backoff.
    async fn prepare(&self, devices: &Arc<Allocation>) -> PreparedPod {
        let mut delay = INITIAL_BACKOFF;
        loop {
            let error = match self.try_prepare(devices).await {
                Ok(prepared) => return prepared,
                Err(error) => error,
            };
            tracing::warn!(pod = self.pod.metadata.name, %error, "Pod not ready to start");
            self.state.update(|facts| {
                let containers = facts.containers.iter_mut();
                let states = containers.flat_map(|container| &mut container.state);
                for waiting in states.flat_map(|state| &mut state.waiting) {
                    waiting.message = Some(error.to_string());
                }
            });
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_BACKOFF);
        }
    }

    async fn try_prepare(&self, devices: &Arc<Allocation>) -> Result<PreparedPod, PrepareError> {
        let status = self.pod.status.as_ref();
        let before = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        let attachment = self.node.network.attach(&self.pod, before).await?;
        self.link_logs()?;
        let volumes = provide(&self.node, &self.pod).await?;
        self.state.update(|facts| {
            facts.address = Some(IpAddr::V4(attachment.lease.address));
            facts.host = Some(self.node.network.host_ip());
        });
        Ok(PreparedPod {
            node: Arc::clone(&self.node),
            pod: Arc::clone(&self.pod),
            uid: self.uid.clone(),
            attachment,
            devices: Arc::clone(devices),
            volumes,
        })
    }

    /// Creates the Pod's directory and links its name to its logs.
    fn link_logs(&self) -> std::io::Result<()> {
        let logs = self.node.paths.logs(&self.uid);
        std::fs::create_dir_all(&logs)?;
        let link = self.log_link();
        if let Some(parent) = link.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(logs, link)
    }

    fn log_link(&self) -> std::path::PathBuf {
        let metadata = &self.pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        self.node.paths.log_link(namespace, name)
    }

    /// Applies changed limits to the containers that run.
    async fn follow_resources(&self, mut observed: watch::Receiver<WatchedPod>) {
        while observed.changed().await.is_ok() {
            let pod = observed.borrow_and_update().pod.clone();
            self.resize(&pod);
        }
    }

    fn resize(&self, pod: &Pod) {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let before = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        for (container, before) in containers.zip(before) {
            let resized = self.state.facts().resized.remove(&container.name);
            let known = resized.or_else(|| before.resources.clone());
            let Some(resources) = container.resources.clone() else {
                continue;
            };
            if known.as_ref() == Some(&resources) {
                continue;
            }
            let name = container.name.clone();
            self.state
                .update(|facts| facts.resized.insert(name, resources));
            let running = self.state.facts().containers;
            let status = running.iter().find(|own| own.name == container.name);
            let run = status.map_or(0, |status| status.restart_count);
            let limits = self.node.limits(container);
            let group = group_name(&self.uid, &container.name, run);
            if let Err(error) = self.node.cgroups.resize(&group, limits) {
                let container = &container.name;
                tracing::warn!(container, %error, "cannot change the limits of a container");
            }
        }
    }

    /// Turns deletion, eviction and shutdown into stop signals, until the containers have terminated.
    async fn forward_stop_signals(
        &self,
        observed: &mut watch::Receiver<WatchedPod>,
        shutdown: &CancellationToken,
        ended: &CancellationToken,
    ) {
        let evicted = self.node.measured.add(&self.uid, &self.pod);
        let grace = tokio::select! {
            gone = until_deleted(observed) => {
                if gone {
                    Duration::ZERO
                } else {
                    grace(&observed.borrow().pod)
                }
            }
            Ok(message) = evicted => {
                self.state.update(|facts| facts.evicted = Some(message));
                Duration::ZERO
            }
            () = shutdown.cancelled() => SHUTDOWN_GRACE,
            () = ended.cancelled() => return,
        };
        self.stop.soft.cancel();
        let shutdown_grace_elapsed = async {
            shutdown.cancelled().await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            _ = observed.wait_for(|seen| seen.is_deleted) => {}
            () = shutdown_grace_elapsed => {}
            () = ended.cancelled() => return,
        }
        self.stop.hard.cancel();
    }

    /// Removes all that takes space but the logs. The object may exist for long after an eviction.
    async fn free_disk(&self) {
        let (uid, paths) = (&self.uid, &self.node.paths);
        let memory = paths.memory().join(uid);
        let trees = [paths.roots(uid), paths.pod_volumes(uid), memory];
        let removed =
            tokio::task::spawn_blocking(move || trees.each_ref().map(|tree| remove_tree(tree)));
        if let Err(error) = removed.await {
            tracing::warn!(%error, "removal failed");
        }
    }

    /// Removes the Pod's files on this machine.
    async fn remove(&self) {
        let link = self.log_link();
        let (uid, paths) = (self.uid.clone(), self.node.paths.clone());
        let removed = tokio::task::spawn_blocking(move || {
            if std::fs::read_link(&link).is_ok_and(|target| target == paths.logs(&uid)) {
                let _ = std::fs::remove_file(&link);
            }
            remove_tree(&paths.pod(&uid));
            remove_tree(&paths.memory().join(&uid));
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "removal failed");
        }
    }
}

fn grace(pod: &Pod) -> Duration {
    let requested = pod.metadata.deletion_grace_period_seconds;
    let spec = pod.spec.as_ref();
    let seconds = requested.or_else(|| spec?.termination_grace_period_seconds);
    Duration::from_secs(u64::try_from(seconds.unwrap_or(DEFAULT_GRACE)).unwrap_or_default())
}
