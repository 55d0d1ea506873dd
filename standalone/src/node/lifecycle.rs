//! One Pod from first sight to last: prepare, initialise, run, end, remove.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Node;
use super::board::{Board, Place};
use super::container::Prepared;
use super::network::NetworkError;
use super::removal;
use super::report::Reporter;
use super::restart::{Policy, Runner, Stop};
use super::status::State;
use super::volumes::{VolumeError, provide};

const DEFAULT_GRACE: i64 = 30;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A Pod as the watch last saw it.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub pod: Arc<Pod>,
    /// Deleted from the API.
    pub gone: bool,
}

/// Why a Pod is not ready to start containers.
#[derive(Debug, thiserror::Error)]
enum PrepareError {
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("Pod directory: {0}")]
    Io(#[from] std::io::Error),
}

/// Runs a Pod until it is gone from the API or the node shuts down.
pub(crate) async fn run(
    node: Arc<Node>,
    mut observed: watch::Receiver<Observed>,
    shutdown: CancellationToken,
) {
    let pod = Arc::clone(&observed.borrow_and_update().pod);
    let life = Life {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        board: Board::new(&pod),
        stop: Stop::default(),
        node,
        pod,
    };
    let mut reporter = Reporter::new(&life.node.client, &life.pod);
    let ended = CancellationToken::new();
    let containers = async {
        if !has_ended(&life.pod) {
            life.containers().await;
        }
        ended.cancel();
    };
    let reports = async {
        if has_ended(&life.pod) {
            return;
        }
        // Ends are not reported at shutdown: the next start shall find the Pod running.
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = reporter.run(&life.board, &life.node.config.node_name, &ended) => {}
        }
    };
    let mut endings = observed.clone();
    let stopping = life.stop_when_told(&mut endings, &shutdown, &ended);
    tokio::join!(containers, reports, stopping);
    if shutdown.is_cancelled() {
        return;
    }
    let gone = tokio::select! {
        gone = until_deleted(&mut observed) => gone,
        () = shutdown.cancelled() => return,
    };
    if !gone {
        tokio::select! {
            () = reporter.delete() => {}
            () = shutdown.cancelled() => return,
        }
    }
    life.remove().await;
}

/// Whether the API already says that nothing will run any more.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Waits until the Pod is to be deleted; true if it is already gone.
async fn until_deleted(observed: &mut watch::Receiver<Observed>) -> bool {
    let seen =
        observed.wait_for(|seen| seen.gone || seen.pod.metadata.deletion_timestamp.is_some());
    seen.await.is_ok_and(|seen| seen.gone)
}

struct Life {
    node: Arc<Node>,
    pod: Arc<Pod>,
    uid: String,
    board: Board,
    stop: Stop,
}

impl Life {
    /// All containers to their ends.
    async fn containers(&self) {
        let prepared = tokio::select! {
            prepared = self.prepare() => prepared,
            () = self.stop.soft.cancelled() => return self.board.update(|facts| facts.over = true),
        };
        let spec = self.pod.spec.clone().unwrap_or_default();
        let policy = Policy::of(spec.restart_policy.as_deref());
        if self.initialise(&prepared, &spec, policy).await {
            self.main(&prepared, &spec, policy).await;
        }
        self.board.update(|facts| facts.over = true);
    }

    async fn initialise(&self, pod: &Prepared, spec: &PodSpec, policy: Policy) -> bool {
        for (number, container) in spec.init_containers.iter().flatten().enumerate() {
            if !self
                .container(pod, container, Place::Init(number), policy.for_init())
                .await
            {
                return false;
            }
        }
        !self.stop.soft.is_cancelled()
    }

    async fn main(&self, pod: &Prepared, spec: &PodSpec, policy: Policy) {
        let mut runners = Vec::new();
        for (number, container) in spec.containers.iter().enumerate() {
            let place = Place::Main(number);
            runners.push(self.container(pod, container, place, policy));
        }
        join_all(runners).await;
    }

    async fn container(
        &self,
        pod: &Prepared,
        container: &Container,
        place: Place,
        policy: Policy,
    ) -> bool {
        let runner = Runner {
            pod,
            board: &self.board,
            place,
            container,
            policy,
            stop: &self.stop,
        };
        runner.run().await
    }

    /// Network and volumes, with patience.
    async fn prepare(&self) -> Prepared {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.try_prepare().await {
                Ok(prepared) => return prepared,
                Err(error) => error,
            };
            tracing::warn!(pod = self.pod.metadata.name, %error, "Pod not ready to start");
            self.board.update(|facts| {
                for container in facts.init.iter_mut().chain(&mut facts.main) {
                    if let State::Waiting { message, .. } = &mut container.state {
                        *message = error.to_string();
                    }
                }
            });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn try_prepare(&self) -> Result<Prepared, PrepareError> {
        let status = self.pod.status.as_ref();
        let before = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        let attachment = self.node.network.attach(before).await?;
        self.link_logs()?;
        let volumes = provide(
            &self.node.client,
            &self.node.paths,
            &self.node.claims,
            &self.pod,
        )
        .await?;
        self.board.update(|facts| {
            facts.address = Some(IpAddr::V4(attachment.address()));
            facts.host = Some(self.node.network.host_ip());
        });
        Ok(Prepared {
            node: Arc::clone(&self.node),
            pod: Arc::clone(&self.pod),
            uid: self.uid.clone(),
            attachment,
            volumes,
        })
    }

    /// Makes the Pod's directory and lets its name lead to its logs.
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
        self.node
            .paths
            .log_link(namespace, metadata.name.as_deref().unwrap_or_default())
    }

    /// Turns deletion and shutdown into signals, until the containers have ended.
    async fn stop_when_told(
        &self,
        observed: &mut watch::Receiver<Observed>,
        shutdown: &CancellationToken,
        ended: &CancellationToken,
    ) {
        let grace = tokio::select! {
            gone = until_deleted(observed) => if gone { Duration::ZERO } else { grace(&observed.borrow().pod) },
            () = shutdown.cancelled() => self.node.config.shutdown_grace,
            () = ended.cancelled() => return,
        };
        self.stop.soft.cancel();
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            () = until_gone(observed) => {}
            () = async { shutdown.cancelled().await; tokio::time::sleep(self.node.config.shutdown_grace).await } => {}
            () = ended.cancelled() => return,
        }
        self.stop.hard.cancel();
    }

    /// Removes what the Pod had on this machine.
    async fn remove(&self) {
        let link = self.log_link();
        let directories = [
            self.node.paths.pod(&self.uid),
            self.node.paths.memory().join(&self.uid),
        ];
        let logs = self.node.paths.logs(&self.uid);
        let removed = tokio::task::spawn_blocking(move || {
            if std::fs::read_link(&link).is_ok_and(|target| target == logs) {
                let _ = std::fs::remove_file(&link);
            }
            for directory in &directories {
                removal::remove(directory);
            }
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "removal failed");
        }
    }
}

async fn until_gone(observed: &mut watch::Receiver<Observed>) {
    let _ = observed.wait_for(|seen| seen.gone).await;
}

fn grace(pod: &Pod) -> Duration {
    let metadata = pod.metadata.deletion_grace_period_seconds;
    let spec = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = metadata.or(spec).unwrap_or(DEFAULT_GRACE);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
