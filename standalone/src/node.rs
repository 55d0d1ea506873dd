//! Process node: a small kubelet that runs Pods as local processes through bubblewrap.
//!
//! It uses the API only through a client, and is its own scheduler and volume provisioner. Each Pod
//! is a task ([`pod_worker`]). All it uses lies below the state directory or carries the node's
//! tag, so that it can be removed.

mod bwrap;
mod capacity;
mod cgroup;
mod claims;
mod container;
mod container_mounts;
mod container_root;
mod container_runner;
mod container_user;
mod devices;
mod disk;
mod environment;
mod exec_as;
mod executor_image;
mod image;
mod image_builds;
mod image_pull;
mod kept_root;
mod kubelet;
mod launcher;
mod leftover_containers;
mod logs;
mod mount;
mod mount_points;
mod network;
mod node_user;
mod overlay;
mod paths;
mod pod_worker;
mod process;
mod seccomp;
mod sessions;
mod startup_probe;
mod status;
mod status_writer;
mod termination_message;
mod user_namespace;
mod user_namespaces;
mod volumes;
mod watch;

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use images::{Credentials, ImageStore, Limits, Puller, Registry, RegistrySettings};
use kube::Client;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

pub use self::exec_as::{EXEC_AS, exec_as};
pub use self::image::{HOST_IMAGE, ImageTable};
pub use self::image_builds::ImageBuildPods;
pub use self::logs::log_stream;
pub use self::network::NetworkError;
pub use self::sessions::RunningContainers;

use self::capacity::Resources;
use self::cgroup::{Device, DiskRate, NodeCgroups};
use self::claims::ClaimProvisioner;
use self::devices::Devices;
use self::disk::MeasuredPods;
use self::image_pull::PulledImages;
use self::kept_root::KeptRoots;
use self::launcher::Launcher;
use self::network::Network;
use self::node_user::NodeUser;
use self::paths::Paths;
use self::user_namespace::UserNamespaces;

const NODE_NAME: &str = "standalone";

const BWRAP: &str = "/usr/bin/bwrap";

const MAX_CONCURRENT_STARTS: usize = 16;

#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Directory of Pods, volumes and logs, for one process at a time.
    pub state_dir: PathBuf,
    /// Lets Pods connect to private networks, such as the one of this machine.
    pub allow_lan: bool,
    /// Runs containers as root of this machine where they cannot have a user namespace.
    pub allow_host_root: bool,
    pub images: ImageTable,
    /// Store and registries of pulled images.
    pub pulls: ImagePullConfig,
    /// Pods that may be privileged in a user namespace of their own; none by default.
    pub image_builds: Option<ImageBuildPods>,
    /// Static `sandbox-executor`.
    pub executor_binary: PathBuf,
    /// Static CRIU, if the processes of sandboxes are kept.
    pub criu: Option<PathBuf>,
    /// Static program whose subcommand `exec-as` is [`exec_as`].
    pub self_exe: PathBuf,
    /// Maximum number of processes and threads of one container.
    pub process_limit: u64,
    /// Bytes per second that a container reads from the disk of the state directory, and writes to
    /// it. 0 is no limit.
    pub disk_rate_limit: u64,
    /// Limit of ephemeral storage, in bytes, of a Pod whose containers have none. 0 is no limit.
    pub pod_disk_limit: u64,
    /// Time between two measurements of the Pods' files.
    pub disk_interval: Duration,
    /// Directories of CDI specifications, from which Pods get devices.
    pub cdi_dirs: Vec<PathBuf>,
    /// Containers that run, for the sessions of the embedded API.
    pub containers: RunningContainers,
    /// Notified once, when the node is set up and accepts Pods.
    pub started: Arc<Notify>,
}

/// Pulls of images from registries.
#[derive(Debug, Clone, Default)]
pub struct ImagePullConfig {
    pub registries: RegistrySettings,
    /// Credentials for all Pods.
    pub credentials: Credentials,
    /// Bytes that the store should take at most; 0 is no limit.
    pub store_limit: u64,
    /// Size of one unpacked layer.
    pub layer_limits: Limits,
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
            allow_lan: false,
            allow_host_root: false,
            images: ImageTable::default(),
            pulls: ImagePullConfig::default(),
            image_builds: None,
            executor_binary: executor_binary.into(),
            criu: None,
            self_exe: self_exe.into(),
            process_limit: 4096,
            disk_rate_limit: 0,
            pod_disk_limit: 10 << 30,
            disk_interval: Duration::from_secs(10),
            cdi_dirs: Vec::new(),
            containers: RunningContainers::default(),
            started: Arc::default(),
        }
    }

    /// Directory of pulled images.
    pub fn image_store(&self) -> PathBuf {
        image_store(&self.state_dir)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("{} is missing: install bubblewrap", BWRAP)]
    NoBubblewrap,
    #[error("state directory {path}: {source}")]
    State { path: PathBuf, source: io::Error },
    #[error("state directory {0} belongs to another running process")]
    InUse(PathBuf),
    #[error(transparent)]
    Images(#[from] images::StoreError),
    #[error("registries: {0}")]
    Registries(#[from] images::RegistryError),
    #[error("launcher thread: {0}")]
    Launcher(io::Error),
    #[error(
        "containers cannot have a user namespace: {0}; --allow-host-root lets them run as root of \
         this machine"
    )]
    UserNamespace(io::Error),
    #[error("the disk use of containers cannot be limited: {0}; --disk-rate-limit 0 does without")]
    DiskRate(io::Error),
    #[error(
        "--memory-persistence needs containers with a user namespace, for which root is needed"
    )]
    NoMemory,
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// Directory of pulled images below the state directory of a node.
pub fn image_store(state_dir: &Path) -> PathBuf {
    state_dir.join("images")
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
    kept_roots: KeptRoots,
    cgroups: NodeCgroups,
    disk_rate: Option<DiskRate>,
    /// User namespaces of containers under a root node.
    users: Option<UserNamespaces>,
    capacity: Resources,
    devices: Arc<Devices>,
    measured: MeasuredPods,
    /// None if the node is not root, which unpacking needs.
    images: Option<PulledImages>,
    starts: Semaphore,
}

/// Runs until `shutdown`; then its containers have ended and everything outside of the state
/// directory is removed. Fails without a prerequisite or if the state directory is in use, never
/// because of a Pod or the API.
pub async fn run(
    client: Client,
    config: NodeConfig,
    shutdown: CancellationToken,
) -> Result<(), NodeError> {
    if !Path::new(BWRAP).exists() {
        return Err(NodeError::NoBubblewrap);
    }
    let (paths, _lock) = open_state(&config.state_dir)?;
    leftover_containers::kill_containers(&paths.tag).await;
    executor_image::create(&paths, &config).map_err(|source| NodeError::State {
        path: paths.executor(),
        source,
    })?;
    cgroup::remove_recorded(&paths.cgroup_record()).await;
    let commands = Launcher::for_commands().await;
    let commands = commands.map_err(NodeError::Launcher)?;
    let launcher = Launcher::for_containers().await;
    let launcher = launcher.map_err(NodeError::Launcher)?;
    let user = NodeUser::current();
    let images = user.is_root().then(|| pulled_images(&config));
    let images = images.transpose()?;
    let capacity = Resources::of_machine();
    let disk_rate = disk_rate(&config).map_err(NodeError::DiskRate)?;
    paths.create_memory().map_err(|source| NodeError::State {
        path: "/dev/shm".into(),
        source,
    })?;
    let set_up = async {
        let record = paths.cgroup_record();
        let cgroups = NodeCgroups::create(&paths.tag, &record, capacity.memory, disk_rate);
        let cgroups = cgroups.map_err(NodeError::DiskRate)?;
        let users = if user.is_root() {
            let created = user_namespaces::create(&config, &paths, &launcher).await;
            require_user_namespace(created, config.allow_host_root)?
        } else {
            None
        };
        if config.criu.is_some() && users.is_none() {
            return Err(NodeError::NoMemory);
        }
        let network = Network::start(user.is_root(), config.allow_lan, &paths, &commands).await?;
        Ok::<_, NodeError>((cgroups, users, network))
    };
    let made = set_up.await;
    if made.is_err() {
        paths.remove_memory();
        cgroup::remove_recorded(&paths.cgroup_record()).await;
    }
    let (cgroups, users, (network, policy_feed)) = made?;
    let node = Arc::new(Node {
        images,
        user,
        users,
        capacity,
        devices: Devices::read(&config.cdi_dirs),
        claims: ClaimProvisioner::new(&paths),
        kept_roots: KeptRoots::default(),
        cgroups,
        disk_rate,
        measured: MeasuredPods::default(),
        starts: Semaphore::new(MAX_CONCURRENT_STARTS),
        client,
        config,
        paths,
        launcher,
        network,
    });
    node.config.started.notify_one();
    tokio::join!(
        watch::pods(Arc::clone(&node), shutdown.clone()),
        watch::claims(Arc::clone(&node), shutdown.clone()),
        watch::policies(Arc::clone(&node), policy_feed, shutdown.clone()),
        disk::enforce(Arc::clone(&node), shutdown.clone()),
        shutdown.run_until_cancelled(capacity::publish(&node))
    );
    clean_up(&node).await;
    Ok(())
}

/// Creates and locks the state directory.
fn open_state(state_dir: &Path) -> Result<(Paths, File), NodeError> {
    let create = || {
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700).create(state_dir)?;
        let paths = Paths::new(state_dir);
        std::fs::create_dir_all(paths.pods())?;
        let lock = File::create(paths.lock())?;
        Ok((paths, lock))
    };
    let (paths, lock) = create().map_err(|source| NodeError::State {
        path: state_dir.to_owned(),
        source,
    })?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| NodeError::InUse(state_dir.to_owned()))?;
    Ok((paths, lock))
}

fn pulled_images(config: &NodeConfig) -> Result<PulledImages, NodeError> {
    let pulls = &config.pulls;
    let store = ImageStore::open(&config.image_store())?;
    let registry = Registry::new(&pulls.registries)?;
    Ok(PulledImages {
        puller: Puller::new(store, registry, pulls.layer_limits),
        credentials: pulls.credentials.clone(),
        limit: pulls.store_limit,
    })
}

/// Limit of the disk use of containers, if one is configured.
fn disk_rate(config: &NodeConfig) -> io::Result<Option<DiskRate>> {
    let bytes = Some(config.disk_rate_limit).filter(|bytes| *bytes > 0);
    let rate = |bytes| {
        let device = Device::of(&config.state_dir)?;
        Ok(DiskRate { device, bytes })
    };
    bytes.map(rate).transpose()
}

/// Accepts a failed creation only if containers may run as root of this machine.
fn require_user_namespace<T>(
    created: io::Result<T>,
    allow_host_root: bool,
) -> Result<Option<T>, NodeError> {
    match created {
        Err(error) if allow_host_root => {
            tracing::warn!(%error, "containers run as root of this machine");
            Ok(None)
        }
        created => created.map(Some).map_err(NodeError::UserNamespace),
    }
}

/// Removes everything outside of the state directory.
async fn clean_up(node: &Node) {
    leftover_containers::kill_containers(&node.paths.tag).await;
    node.network.stop().await;
    cgroup::remove_recorded(&node.paths.cgroup_record()).await;
    node.paths.remove_memory();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_user_namespace_is_an_error_unless_host_root_is_allowed() {
        let failed = || Err::<(), _>(io::Error::from(io::ErrorKind::Unsupported));
        let error = require_user_namespace(failed(), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("--allow-host-root"), "{error}");
        assert_eq!(require_user_namespace(failed(), true).unwrap(), None);
        assert_eq!(require_user_namespace(Ok(()), false).unwrap(), Some(()));
    }
}
