//! Command line flags. Every flag but --image and --registry-mirror is also an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, Subcommand};
use operator::controller::{BUILDER_IMAGE, Deadlines, DefaultLevel};
use operator::gateway::ApiSettings;
use operator::urls::UrlForm;

use crate::node::HOST_IMAGE;

/// Run Sandbox Operator on one machine, without a cluster.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Args {
    /// State directory, for one process at a time. All data that survives a restart is stored here.
    #[arg(long, env = "SANDBOX_STATE_DIR", default_value = ".state")]
    pub state_dir: PathBuf,

    /// Address of the gateway. On 0.0.0.0, connections from other machines are rejected unless
    /// --public is set: loopback URLs need all of 127.0.0.0/8.
    #[arg(long, env = "SANDBOX_LISTEN", default_value = "0.0.0.0:5000")]
    pub listen: SocketAddr,

    /// Accept connections from other machines.
    #[arg(long, env = "SANDBOX_PUBLIC")]
    pub public: bool,

    /// Address of the embedded Kubernetes-style API.
    #[arg(long, env = "SANDBOX_API_LISTEN", default_value = "127.0.0.1:5001")]
    pub api_listen: SocketAddr,

    /// Form of sandbox URLs: nested, path, loopback or auto. auto: nested below `localhost` if
    /// names below it resolve here, else loopback, or path if `--listen` names one address.
    #[arg(long, env = "SANDBOX_URL_FORM", default_value = "auto")]
    pub url_form: FormChoice,

    /// Root directory of an image, as NAME=DIRECTORY, which is copied for each container.
    #[arg(long = "image", value_name = "NAME=DIRECTORY", value_parser = image)]
    pub images: Vec<(String, PathBuf)>,

    /// Use this machine's own programs in place of every image, as the image `host` does. Nothing
    /// is pulled.
    #[arg(long, env = "SANDBOX_HOST_FALLBACK")]
    pub host_fallback: bool,

    #[command(flatten)]
    pub registries: RegistryArgs,

    /// Number of warm Pods, which sandboxes of the API claim instead of waiting for a Pod of their
    /// own. They are those of the `SandboxPool` warm.
    #[arg(long, env = "SANDBOX_WARM_PODS", default_value_t = 1)]
    pub warm_pods: u32,

    /// Image of the warm Pods. Sandboxes with another image do not claim them.
    #[arg(long, env = "SANDBOX_WARM_IMAGE", default_value = HOST_IMAGE)]
    pub warm_image: String,

    /// Allow sandboxes to connect to private networks, such as the one of this machine.
    #[arg(long, env = "SANDBOX_ALLOW_LAN")]
    pub allow_lan: bool,

    /// Run sandboxes as root of this machine, with few capabilities, if their mounts cannot be
    /// mapped into a user namespace. Without this flag, the start fails then.
    #[arg(long, env = "SANDBOX_ALLOW_HOST_ROOT")]
    pub allow_host_root: bool,

    /// Ephemeral storage of Pods without a limit of their own. A Pod that uses more is evicted. 0 is
    /// no limit.
    #[arg(long, env = "SANDBOX_POD_DISK_LIMIT", default_value = "10Gi", value_parser = bytes)]
    pub pod_disk_limit: u64,

    /// Largest number of processes and threads of a container.
    #[arg(long, env = "SANDBOX_PROCESS_LIMIT", default_value_t = 4096,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub process_limit: u64,

    /// Bytes per second that a container reads from the disk of the state directory, and writes to
    /// it. 0 is no limit. Without the cgroup controller for disks, the start fails with a limit.
    #[arg(long, env = "SANDBOX_DISK_RATE_LIMIT", default_value = "0", value_parser = bytes)]
    pub disk_rate_limit: u64,

    /// Image with BuildKit, which runs the builds of --image-builds full.
    #[arg(long, env = "SANDBOX_BUILDER_IMAGE", default_value = BUILDER_IMAGE)]
    pub builder_image: String,

    /// Directories of CDI specifications, separated by commas. Sandboxes get the devices that these
    /// describe by a limit with the name of their kind, such as `nvidia.com/gpu: 1`. Of two devices
    /// with one name, that of the later directory counts. They are read at the start.
    #[arg(
        long,
        env = "SANDBOX_CDI_DIRS",
        value_name = "DIRECTORIES",
        value_delimiter = ',',
        default_value = "/etc/cdi,/var/run/cdi"
    )]
    pub cdi_dirs: Vec<PathBuf>,

    /// Path of the executor binary. Default: `sandbox-executor` beside this program.
    #[arg(long, env = "SANDBOX_EXECUTOR")]
    pub executor: Option<PathBuf>,

    /// Level of sandboxes without `spec.persistence`: what a pause keeps. Workspace, Root (all
    /// changed files) or Memory (processes as well); auto: Root for those of clients, if this
    /// program runs as root.
    #[arg(long, env = "SANDBOX_DEFAULT_PERSISTENCE", default_value_t)]
    pub default_persistence: DefaultLevel,

    /// Let pauses keep processes, for sandboxes of level Memory. Needs CRIU, and containers with a
    /// user namespace. The system calls of these sandboxes are not filtered.
    #[arg(long, env = "SANDBOX_MEMORY_PERSISTENCE")]
    pub memory_persistence: bool,

    /// Path of the CRIU binary, for --memory-persistence. Default: `criu` beside the executor.
    #[arg(long, env = "SANDBOX_CRIU")]
    pub criu: Option<PathBuf>,

    #[command(flatten)]
    pub settings: ApiSettings,

    #[command(flatten)]
    pub deadlines: Deadlines,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands that do not run the server.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Manage the pulled images.
    #[command(subcommand)]
    Images(ImagesCommand),
}

/// Commands on the image store of the state directory. The server may run meanwhile.
#[derive(Debug, Clone, Subcommand)]
pub enum ImagesCommand {
    /// Pull images, whether they are there or not.
    Pull {
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Load the images of a file: an archive of `docker save`, or an OCI layout as an archive or a
    /// directory.
    Load {
        file: PathBuf,
        /// Name of an image that has none in the file.
        #[arg(long, value_name = "IMAGE")]
        name: Option<String>,
    },
    /// Save images to an archive, an OCI layout that `docker load` reads too.
    Save {
        #[arg(required = true)]
        images: Vec<String>,
        /// File of the archive; it must not exist.
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Push an image to a registry. Parts that the repository has already are not uploaded.
    Push {
        image: String,
        /// Name in the registry. Default: that of the image.
        #[arg(long, value_name = "IMAGE")]
        to: Option<String>,
    },
    /// List the images.
    Ls,
    /// Remove images. Those in use keep their files until their last container ends.
    Rm {
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Remove all images that no container uses.
    Prune,
}

/// Registries of images.
#[derive(Debug, Clone, clap::Args)]
pub struct RegistryArgs {
    /// Registries that are reached over HTTP, as HOST[:PORT], separated by commas.
    #[arg(
        long = "insecure-registries",
        env = "SANDBOX_INSECURE_REGISTRIES",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub insecure: Vec<String>,

    /// Mirror that is asked before a registry, as HOST=MIRROR. May be repeated.
    #[arg(long = "registry-mirror", value_name = "HOST=MIRROR", value_parser = mirror)]
    pub mirrors: Vec<(String, String)>,

    /// Credentials of registries, in the format of Docker's config.json.
    #[arg(long, env = "SANDBOX_REGISTRY_CONFIG", value_name = "FILE")]
    pub registry_config: Option<PathBuf>,

    /// Size of all pulled images. After a pull, images that are not in use are removed, those used
    /// longest ago first. 0 is no limit.
    #[arg(long, env = "SANDBOX_IMAGE_STORE_LIMIT", default_value = "100Gi", value_parser = bytes)]
    pub image_store_limit: u64,
}

/// `auto` or a URL form.
#[derive(Debug, Clone, Copy)]
pub enum FormChoice {
    Auto,
    Form(UrlForm),
}

impl FromStr for FormChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Form),
        }
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let bytes = operator::quantity::whole(text, 1.0);
    bytes.ok_or_else(|| "not a quantity (examples: 500Mi, 10Gi)".into())
}

fn mirror(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let (host, mirror) = parts.ok_or_else(|| format!("{text:?} is not HOST=MIRROR"))?;
    Ok((host.into(), mirror.into()))
}

/// Parses the name of an image and its root directory.
fn image(text: &str) -> Result<(String, PathBuf), String> {
    let (name, directory) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not NAME=DIRECTORY"))?;
    let directory = PathBuf::from(directory);
    if !directory.is_dir() {
        return Err(format!("{} is not a directory", directory.display()));
    }
    Ok((name.into(), directory))
}
