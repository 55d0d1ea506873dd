//! Configuration of a gateway: its flags, each also an environment variable, which the chart sets.
//! The doc comments of flags are their help texts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{FalseyValueParser, RangedU64ValueParser};
use crds::int_or_string::IntOrString;
use crds::sandbox::Workspace;
use ipnet::IpNet;
use secrecy::SecretString;

use crate::builds::{Registries, RegistryArgs};
use crate::proxy::pod_network::PodNetwork;
use crate::serve::tls::Certificate;
use shared::diagnostics::Diagnostics;
use shared::image_builds::{DEFAULT_NAMESPACE, ImageBuilds};
use shared::resources::{ResourceArgs, ResourceDefaults};
use shared::urls::{Scheme, UrlForm, Urls};

/// Mount path of the workspaces of the API's sandboxes.
const MOUNT_PATH: &str = "/workspace";

/// Configuration of a gateway. [`Default`] has the values of absent flags.
#[derive(Debug, Clone, clap::Args)]
pub struct GatewayConfig {
    /// Address that the API and the proxy listen on.
    #[arg(long, env = "GATEWAY_LISTEN", default_value = "0.0.0.0:5000")]
    pub listen: SocketAddr,

    /// Namespace of the sandboxes that the API starts.
    #[arg(
        long = "gateway-namespace",
        env = "GATEWAY_NAMESPACE",
        default_value = "default"
    )]
    pub namespace: String,

    /// Size of the workspace of a sandbox.
    #[arg(long, env = "GATEWAY_WORKSPACE_SIZE", default_value = "10Gi")]
    pub workspace_size: String,

    /// Storage class of workspaces. Default: that of the cluster.
    #[arg(long, env = "GATEWAY_STORAGE_CLASS")]
    pub storage_class: Option<String>,

    #[command(flatten)]
    pub runtime_classes: RuntimeClasses,

    /// Seconds that a request is held for a sandbox that restarts or moves.
    #[arg(
        long = "hold-seconds",
        value_name = "HOLD_SECONDS",
        env = "GATEWAY_HOLD_SECONDS",
        default_value = "120",
        value_parser = seconds
    )]
    pub hold_limit: Duration,

    /// Seconds that new connections are still accepted after the shutdown signal. The replica is
    /// not ready in this time, so that load balancers can react.
    #[arg(
        long = "drain-delay-seconds",
        value_name = "DRAIN_DELAY_SECONDS",
        env = "GATEWAY_DRAIN_DELAY_SECONDS",
        default_value = "5",
        value_parser = seconds
    )]
    pub drain_delay: Duration,

    /// Seconds that open requests may continue after that.
    #[arg(
        long = "drain-seconds",
        value_name = "DRAIN_SECONDS",
        env = "GATEWAY_DRAIN_SECONDS",
        default_value = "20",
        value_parser = seconds
    )]
    pub drain_limit: Duration,

    #[command(flatten)]
    pub settings: ApiSettings,

    #[command(flatten)]
    pub resources: ResourceArgs,

    /// Maximum number of connections at the same time.
    #[arg(
        long,
        env = "GATEWAY_MAX_CONNECTIONS",
        default_value_t = 16_384,
        value_parser = positive_number()
    )]
    pub max_connections: usize,

    /// Maximum number of concurrent connections from one address or IPv6 /64 network; 0: no limit. Trusted
    /// proxies are exempt, and clients that they report by the PROXY protocol are not. Only useful where
    /// the gateway sees the addresses of clients
    #[arg(
        long,
        env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS",
        default_value_t = 4096
    )]
    pub max_connections_per_address: usize,

    // An eighth of all connections by default, so that one sandbox cannot take most of them.
    /// Maximum number of requests in flight to one sandbox, including streams, tunnels and held
    /// requests.
    #[arg(
        long,
        env = "GATEWAY_MAX_REQUESTS_PER_SANDBOX",
        default_value_t = 2048,
        value_parser = positive_number()
    )]
    pub max_requests_per_sandbox: usize,

    // Each takes a few KiB.
    /// Maximum number of requests held for sandboxes that wake, restart or move.
    #[arg(
        long,
        env = "GATEWAY_MAX_HELD_REQUESTS",
        default_value_t = 16_384,
        value_parser = positive_number()
    )]
    pub max_held_requests: usize,

    /// Maximum number of concurrent connections to sandboxes
    #[arg(
        long,
        env = "GATEWAY_MAX_UPSTREAM_CONNECTIONS",
        default_value_t = 16_384,
        value_parser = positive_number()
    )]
    pub max_upstream_connections: usize,

    // Half of the memory limit of the chart by default.
    /// Memory of client connections and request heads, in MiB. Requests beyond it get 503
    #[arg(
        long,
        env = "GATEWAY_CLIENT_MEMORY_MIB",
        default_value_t = 512,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 20)
    )]
    pub client_memory_mib: usize,

    /// Networks (CIDR) of proxies whose X-Forwarded-For is believed, separated by commas
    #[arg(long, env = "GATEWAY_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<IpNet>,

    /// Require a PROXY protocol header (version 1 or 2) from --trusted-proxies. From other clients
    /// none is accepted.
    #[arg(
        long,
        env = "GATEWAY_PROXY_PROTOCOL",
        requires_if("true", "trusted_proxies"),
        value_parser = FalseyValueParser::new()
    )]
    pub proxy_protocol: bool,

    /// PEM file of the certificate chain. With it, the listener speaks TLS (HTTP/1.1 and HTTP/2).
    /// Changed files are loaded within seconds.
    #[arg(long, env = "GATEWAY_TLS_CERTIFICATE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,

    /// PEM file of the private key of that certificate.
    #[arg(long, env = "GATEWAY_TLS_KEY", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,

    // A server that was started with that base path may answer below it only.
    /// Keep the prefix `/{id}/vscode` in the path of requests to VS Code.
    #[arg(long, env = "GATEWAY_KEEP_VSCODE_PREFIX")]
    pub keep_vscode_prefix: bool,

    /// Public URLs, which have flags of their own.
    #[arg(skip = local_urls())]
    pub urls: Urls,
    /// True if only connections to a loopback address are served, for a listener on all addresses:
    /// loopback URLs use all of 127.0.0.0/8.
    #[arg(skip)]
    pub local_only: bool,
    /// Allows Pods on loopback addresses, for one machine whose Pods share the host network.
    #[arg(skip)]
    pub loopback_pods: bool,
    /// Network of the Pods; `None`: TCP.
    #[arg(skip)]
    pub pod_network: Option<PodNetwork>,
    #[arg(skip)]
    pub vitals: Arc<Diagnostics>,
    /// Content of the TLS files; `None` is plain HTTP.
    #[arg(skip)]
    pub certificate: Option<Arc<Certificate>>,
    /// Tenant to which the repository of `registry_prefix` belongs; it is shared otherwise.
    #[arg(skip)]
    pub registry_owner: Option<String>,
    /// Registries of image builds, if any are used.
    #[arg(skip)]
    pub registries: Option<Arc<Registries>>,
}

/// Runtime classes of the cluster, and the handling of unknown ones.
#[derive(Debug, Clone, clap::Args)]
pub struct RuntimeClasses {
    /// Runtime class of sandboxes that request none. Default: that of the controller.
    #[arg(
        long = "runtime-class",
        value_name = "RUNTIME_CLASS",
        env = "GATEWAY_RUNTIME_CLASS"
    )]
    pub default: Option<String>,

    /// Runtime classes that clients may request, separated by commas.
    #[arg(
        long = "runtime-classes",
        value_name = "RUNTIME_CLASSES",
        env = "GATEWAY_RUNTIME_CLASSES",
        value_delimiter = ','
    )]
    pub installed: Vec<String>,

    /// Runtime class that the name gvisor stands for.
    #[arg(
        long = "gvisor-class",
        value_name = "GVISOR_CLASS",
        env = "GATEWAY_GVISOR_CLASS",
        default_value = "gvisor"
    )]
    pub gvisor: String,

    /// Reject unknown runtime classes instead of using the default.
    #[arg(
        long = "strict-runtime-classes",
        env = "GATEWAY_STRICT_RUNTIME_CLASSES"
    )]
    pub strict: bool,
}

/// Settings of the API that a standalone process has as well.
#[derive(Debug, Clone, clap::Args)]
pub struct ApiSettings {
    /// Administrator password. If unset, the admin API is disabled.
    #[arg(long, env = "ADMIN_PASSWORD", hide_env_values = true)]
    pub admin_password: Option<SecretString>,

    // Otherwise the first stored one hides all others (`docs/specs/runtime-api.md`, section 1.11).
    /// Let stored warm runtime configs override the others by name, instead of hiding all.
    #[arg(
        long,
        env = "WARM_RUNTIME_CONFIG_OVERLAY",
        value_parser = FalseyValueParser::new()
    )]
    pub warm_runtime_config_overlay: bool,

    /// Upper bound of the resource factor of a start; must be the same for the controller.
    #[arg(
        long = "gateway-max-resource-factor",
        env = "SANDBOX_MAX_RESOURCE_FACTOR",
        default_value_t = 8.0,
        value_parser = resource_factor
    )]
    pub max_resource_factor: f64,

    /// Image repository for clients that name no image; they append /runtime.
    #[arg(
        long,
        env = "GATEWAY_REGISTRY_PREFIX",
        default_value = "ghcr.io/openhands"
    )]
    pub registry_prefix: String,

    /// Image builds of clients that name no image: off rejects them and reports every image as
    /// existing, alias makes the built image another name of its base image, append adds a layer to
    /// parents in the registry of the API key, full runs every other Dockerfile in a Pod, and both
    /// are as alias else. Default: off, in a standalone process alias.
    #[arg(long, env = "SANDBOX_IMAGE_BUILDS")]
    pub image_builds: Option<ImageBuilds>,

    /// Serve sandboxes as tools of the Model Context Protocol at /mcp.
    #[arg(
        long,
        env = "GATEWAY_MCP",
        default_value = "true",
        default_missing_value = "true",
        num_args = 0..=1,
        action = clap::ArgAction::Set,
        value_parser = FalseyValueParser::new()
    )]
    pub mcp: bool,

    /// Serve the console, a page for people, at /console/. Default: false, in a standalone process
    /// true.
    #[arg(
        long,
        env = "GATEWAY_CONSOLE",
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        value_parser = FalseyValueParser::new()
    )]
    pub console: Option<bool>,

    /// Namespace of the Pods of full builds.
    #[arg(long, env = "SANDBOX_BUILD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    pub build_namespace: String,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        without_flags()
    }
}

impl Default for ApiSettings {
    fn default() -> Self {
        without_flags()
    }
}

/// The values of an empty command line, independent of the environment.
fn without_flags<T: clap::Args>() -> T {
    let command = T::augment_args(clap::Command::new("gateway").no_binary_name(true));
    let command = command.mut_args(|arg| arg.env(None::<&str>));
    let values = T::from_arg_matches(&command.get_matches_from([""; 0]));
    values.unwrap_or_else(|error| error.exit())
}

impl GatewayConfig {
    /// Prepares the access to registries that the mode of image builds needs.
    pub fn open_registries(&mut self, args: &RegistryArgs) -> Result<(), images::RegistryError> {
        if self.image_builds() >= ImageBuilds::Append {
            self.registries = Some(Arc::new(Registries::new(args)?));
        }
        Ok(())
    }

    pub fn image_builds(&self) -> ImageBuilds {
        self.settings.image_builds.unwrap_or_default()
    }

    /// Resources of sandboxes that set none, as the controller gives them.
    pub fn resources(&self) -> ResourceDefaults {
        self.resources.defaults(self.settings.max_resource_factor)
    }

    /// Workspace of the API's sandboxes.
    pub fn workspace(&self) -> Workspace {
        Workspace {
            size: IntOrString::String(self.workspace_size.clone()),
            storage_class_name: present(self.storage_class.as_deref()).map(str::to_owned),
            mount_path: Some(MOUNT_PATH.to_owned()),
        }
    }
}

/// Treats empty text as absent: charts set the variable of an absent value to the empty text.
pub(crate) fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn local_urls() -> Urls {
    Urls {
        scheme: Scheme::Http,
        base: "localhost:5000".into(),
        form: UrlForm::Nested,
    }
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// Parses a limit: 0 would block every client, and a semaphore has an upper bound.
fn positive_number() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 24)
}

fn resource_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    factor
        .filter(|factor: &f64| factor.is_finite() && *factor > 0.0)
        .ok_or_else(|| "must be a number greater than 0".to_owned())
}

#[cfg(test)]
mod tests;
