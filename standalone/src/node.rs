//! Process node: a small kubelet that runs Pods as local processes through bubblewrap.
//!
//! It uses the API only through a client, and is its own scheduler and volume provisioner. Each Pod
//! is a task ([`pod_worker`]). All it uses lies below the state directory or carries the node's
//! tag, so that it can be removed.

mod backoff;
mod bwrap;
mod capacity;
mod cgroup;
mod claims;
mod container;
mod container_runner;
mod container_user;
mod environment;
mod exec_as;
mod image;
mod launcher;
mod leftover_containers;
mod logs;
mod mount;
mod network;
mod node_user;
mod paths;
mod pod_state;
mod pod_worker;
mod process;
mod remove_tree;
mod seccomp;
mod status;
mod status_writer;
mod termination_message;
mod user_namespace;
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
pub use self::logs::{LogOptions, log_stream, logs};
pub use self::network::{BadCidr, Cidr, NetworkError, PodNetwork};

use self::capacity::Resources;
use self::cgroup::NodeCgroups;
use self::claims::ClaimProvisioner;
use self::launcher::Launcher;
use self::network::{Lan, Network};
use self::node_user::NodeUser;
use self::paths::Paths;
use self::user_namespace::UserNamespace;

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Directory of Pods, volumes and logs, for one process at a time.
    pub state_dir: PathBuf,
    pub node_name: String,
    pub pod_network: PodNetwork,
    /// Lets Pods connect to private networks, such as the one of this machine.
    pub allow_lan: bool,
    pub images: ImageTable,
    /// Static `sandbox-executor`.
    pub executor_binary: PathBuf,
    /// Static program whose subcommand `exec-as` is [`exec_as`].
    pub self_exe: PathBuf,
    pub bwrap: PathBuf,
    /// Maximum number of processes and threads of one container.
    pub process_limit: u64,
    /// Maximum number of concurrent container starts.
    pub concurrent_starts: usize,
    /// Bytes kept of the output of one container run.
    pub log_limit: u64,
    /// Time between SIGTERM and SIGKILL when the node shuts down.
    pub shutdown_grace: Duration,
}

impl NodeConfig {
    /// Default settings for these paths.
    pub fn new(
        state_dir: impl Into<PathBuf>,
        executor_binary: impl Into<PathBuf>,
        self_exe: impl Into<PathBuf>,
    ) -> Self {
        Self {
            state_dir: state_dir.into(),
            node_name: "standalone".to_owned(),
            pod_network: PodNetwork::detect(),
            allow_lan: false,
            images: ImageTable::default(),
            executor_binary: executor_binary.into(),
            self_exe: self_exe.into(),
            bwrap: PathBuf::from("/usr/bin/bwrap"),
            process_limit: 4096,
            concurrent_starts: 16,
            log_limit: 10 << 20,
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

/// The node cannot run.
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

/// State that all Pods share.
pub(crate) struct Node {
    client: Client,
    config: NodeConfig,
    paths: Paths,
    user: NodeUser,
    launcher: Launcher,
    network: Network,
    claims: ClaimProvisioner,
    cgroups: NodeCgroups,
    /// User namespace of containers under a root node.
    users: Option<Arc<UserNamespace>>,
    capacity: Resources,
    starts: Semaphore,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.config.node_name)
    }
}

/// Runs the node until `shutdown`. Returns when its containers have ended and everything outside of
/// the state directory is removed.
///
/// # Errors
///
/// If the machine lacks a prerequisite or the state directory is in use; never because of a Pod or
/// the API.
pub async fn run(
    client: Client,
    config: NodeConfig,
    shutdown: CancellationToken,
) -> Result<(), NodeError> {
    if !config.bwrap.exists() {
        return Err(NodeError::NoBubblewrap(config.bwrap));
    }
    let (paths, _lock) = open_state(&config.state_dir)?;
    leftover_containers::kill_containers(&paths.tag).await;
    cgroup::remove_recorded(&paths.cgroup_record()).await;
    let commands = Launcher::for_commands()
        .await
        .map_err(NodeError::Launcher)?;
    let launcher = Launcher::for_containers()
        .await
        .map_err(NodeError::Launcher)?;
    let lan = if config.allow_lan {
        Lan::Open
    } else {
        Lan::Closed
    };
    let network = Network::start(config.pod_network, lan, &paths, &commands).await?;
    paths.create_memory().map_err(|source| NodeError::State {
        path: "/dev/shm".into(),
        source,
    })?;
    let user = NodeUser::current();
    let users = if user.is_root() {
        user_namespace(&config, &paths, &launcher).await
    } else {
        None
    };
    let node = Arc::new(Node {
        user,
        users,
        capacity: Resources::of_machine(),
        claims: ClaimProvisioner::new(&paths),
        cgroups: NodeCgroups::create(&paths.tag, &paths.cgroup_record()),
        starts: Semaphore::new(config.concurrent_starts.max(1)),
        client,
        config,
        paths,
        launcher,
        network,
    });
    let claims = watch::claims(Arc::clone(&node), shutdown.clone());
    let publish = capacity::publish(&node.client, &node.config.node_name, node.capacity);
    let publish = shutdown.run_until_cancelled(publish);
    tokio::join!(
        watch::pods(Arc::clone(&node), shutdown.clone()),
        claims,
        publish
    );
    clean_up(&node).await;
    Ok(())
}

/// Creates and locks the state directory.
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

/// The user namespace of containers. Without one, root in a container is root of the host, with
/// few capabilities.
async fn user_namespace(
    config: &NodeConfig,
    paths: &Paths,
    launcher: &Launcher,
) -> Option<Arc<UserNamespace>> {
    let range = u32::from_str_radix(&paths.tag, 16).unwrap_or_default();
    let (directory, state, memory) = (paths.mapped_mounts(), paths.pods(), paths.memory());
    let executables = [config.self_exe.clone(), config.executor_binary.clone()];
    let created = tokio::task::spawn_blocking(move || {
        let [program, executor] = &executables;
        let sources = [Path::new("/usr"), &state, &memory, program, executor];
        UserNamespace::create(range, directory, &sources).map(Arc::new)
    });
    let created = match created.await.map_err(std::io::Error::from) {
        Ok(Ok(users)) => {
            let prepared = Arc::clone(&users);
            launcher
                .run(move |_| prepared.prepare())
                .await
                .map(|()| users)
        }
        Ok(Err(error)) | Err(error) => Err(error),
    };
    created
        .inspect_err(|error| {
            tracing::warn!(%error, "containers have no user namespace: cannot map their mounts");
        })
        .ok()
}

/// Removes everything outside of the state directory.
async fn clean_up(node: &Node) {
    leftover_containers::kill_containers(&node.paths.tag).await;
    node.network.stop().await;
    cgroup::remove_recorded(&node.paths.cgroup_record()).await;
    node.paths.remove_memory();
}
