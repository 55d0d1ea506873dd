//! The process node: a small kubelet that runs Pods as local processes through bubblewrap.
//!
//! It talks to the API only through a client, like any node, and is its own scheduler and volume
//! provisioner. Each Pod is a task of its own ([`lifecycle`]); whatever a Pod needs from the
//! machine lives below the state directory or carries the node's tag, so that nothing leaks.

mod backoff;
mod board;
mod bwrap;
mod cgroup;
mod claims;
mod container;
mod environment;
mod exec_as;
mod identity;
mod image;
mod last_words;
mod launcher;
mod lifecycle;
mod logs;
mod network;
mod paths;
mod process;
mod quantity;
mod removal;
mod report;
mod restart;
mod status;
mod sweep;
mod volumes;
mod watch;

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::exec_as::{EXEC_AS, exec_as};
pub use self::image::{EXECUTOR_IMAGE, ImageTable};
pub use self::logs::{LogOptions, logs};
pub use self::network::{BadCidr, Cidr, NetworkError, PodNetwork};

use self::cgroup::Groups;
use self::claims::Claims;
use self::identity::NodeUser;
use self::launcher::Launcher;
use self::network::Network;
use self::paths::Paths;

/// What a node needs to know.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Pods, volumes and logs live here. One process at a time.
    pub state_dir: PathBuf,
    pub node_name: String,
    pub pod_network: PodNetwork,
    pub images: ImageTable,
    /// The static `sandbox-executor`.
    pub executor_binary: PathBuf,
    /// A static program whose subcommand `exec-as` is [`exec_as`]: this one.
    pub self_exe: PathBuf,
    pub bwrap: PathBuf,
    /// Containers that are being started at the same time.
    pub concurrent_starts: usize,
    /// Bytes kept of the output of one start of a container.
    pub log_limit: u64,
    /// What containers get between SIGTERM and SIGKILL when the node shuts down.
    pub shutdown_grace: Duration,
}

impl NodeConfig {
    /// Defaults for everything but places.
    pub fn new(
        state_dir: impl Into<PathBuf>,
        executor_binary: impl Into<PathBuf>,
        self_exe: impl Into<PathBuf>,
    ) -> Self {
        Self {
            state_dir: state_dir.into(),
            node_name: "standalone".to_owned(),
            pod_network: PodNetwork::detect(),
            images: ImageTable::default(),
            executor_binary: executor_binary.into(),
            self_exe: self_exe.into(),
            bwrap: PathBuf::from("/usr/bin/bwrap"),
            concurrent_starts: 16,
            log_limit: 10 << 20,
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

/// Why the node cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{0} is missing: install bubblewrap")]
    NoBubblewrap(PathBuf),
    #[error("state directory {path}: {source}")]
    State {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("state directory {0} belongs to another running process")]
    InUse(PathBuf),
    #[error("launcher thread: {0}")]
    Launcher(std::io::Error),
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// What all Pods share.
pub(crate) struct Node {
    client: Client,
    config: NodeConfig,
    paths: Paths,
    user: NodeUser,
    launcher: Launcher,
    network: Network,
    claims: Claims,
    groups: Option<Groups>,
    starts: Semaphore,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.config.node_name)
    }
}

/// Runs the node until `shutdown`; returns when its containers have ended and everything that
/// is outside of the state directory is removed.
///
/// # Errors
/// If the machine lacks something, or the state directory is in use. Never because of a Pod or
/// of the API.
pub async fn run(
    client: Client,
    config: NodeConfig,
    shutdown: CancellationToken,
) -> Result<(), NodeError> {
    if !config.bwrap.exists() {
        return Err(NodeError::NoBubblewrap(config.bwrap));
    }
    let (paths, _lock) = open_state(&config.state_dir)?;
    sweep::kill_containers(&paths.tag).await;
    cgroup::remove_recorded(&paths.group_record()).await;
    let commands = Launcher::for_commands()
        .await
        .map_err(NodeError::Launcher)?;
    let launcher = Launcher::for_containers()
        .await
        .map_err(NodeError::Launcher)?;
    let network = Network::start(config.pod_network, &paths, &commands).await?;
    let node = Arc::new(Node {
        user: NodeUser::current(),
        claims: Claims::new(&paths),
        groups: memory_groups(&paths),
        starts: Semaphore::new(config.concurrent_starts.max(1)),
        client,
        config,
        paths,
        launcher,
        network,
    });
    let claims = watch::claims(Arc::clone(&node), shutdown.clone());
    tokio::join!(watch::pods(Arc::clone(&node), shutdown), claims);
    clean_up(&node).await;
    Ok(())
}

/// Makes the state directory and locks it.
fn open_state(state_dir: &Path) -> Result<(Paths, File), NodeError> {
    let failed = |source| NodeError::State {
        path: state_dir.to_owned(),
        source,
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state_dir)
        .map_err(failed)?;
    let paths = Paths::new(state_dir);
    std::fs::create_dir_all(paths.pods()).map_err(failed)?;
    let lock = File::create(paths.lock()).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| NodeError::InUse(state_dir.to_owned()))?;
    Ok((paths, lock))
}

fn memory_groups(paths: &Paths) -> Option<Groups> {
    match Groups::make(&paths.tag, &paths.group_record()) {
        Ok(groups) => Some(groups),
        Err(error) => {
            tracing::info!(%error, "memory limits are not enforced: no memory group can be made");
            None
        }
    }
}

/// Removes what lies outside of the state directory.
async fn clean_up(node: &Node) {
    sweep::kill_containers(&node.paths.tag).await;
    node.network.stop().await;
    cgroup::remove_recorded(&node.paths.group_record()).await;
    removal::remove(&node.paths.memory());
}
