//! Flags of full image builds. Each is also an environment variable.

use std::collections::BTreeMap;
use std::path::PathBuf;

use builder::RegistryAccess;
use k8s_openapi::api::core::v1::Toleration;
use shared::image_builds::DEFAULT_NAMESPACE;

use super::pod_args::{Json, parse_json, parse_label, present_all};

/// Image with BuildKit and the program `buildctl-daemonless.sh`, for builds without root.
pub const BUILDER_IMAGE: &str = "docker.io/moby/buildkit:v0.34.2-rootless";

/// Full image builds: their Pods and limits.
#[derive(Debug, Clone)]
pub struct BuilderConfig {
    /// Namespace of the Pods; none of the sandboxes is in it.
    pub namespace: String,
    pub image: String,
    pub isolation: BuilderIsolation,
    pub steps: BuildSteps,
    pub limits: BuildLimits,
    /// Registries that are reached over HTTP.
    pub insecure_registries: Vec<String>,
    pub pull_secrets: Vec<String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub runtime_class: Option<String>,
}

/// Limits of builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildLimits {
    /// Builds at once.
    pub builds: usize,
    pub builds_per_tenant: usize,
    /// Quantities of one build.
    pub cpu: String,
    pub memory: String,
    pub disk: String,
}

/// Confinement of the instructions of a Dockerfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BuilderIsolation {
    /// BuildKit runs as user 1000 and makes a user namespace itself. Works on most nodes.
    #[default]
    Rootless,
    /// The Pod has a user namespace in which BuildKit is root (`hostUsers: false`).
    UserNamespace,
}

/// Place of the steps that have credentials of the registry.
#[derive(Debug, Clone)]
pub enum BuildSteps {
    /// Containers of the Pod.
    Containers {
        /// Image of this program.
        image: String,
        /// Secret of type `kubernetes.io/dockerconfigjson` in the namespace of builds.
        registry_secret: Option<String>,
    },
    /// This process. The Pod runs on this machine, and has directories below this one.
    Local {
        directory: PathBuf,
        registries: RegistryAccess,
    },
}

/// Flags of full image builds.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Full image builds")]
pub struct BuildArgs {
    /// Namespace of the Pods of full builds. Pods in it need the Pod Security level privileged.
    #[arg(long, env = "SANDBOX_BUILD_NAMESPACE", default_value = DEFAULT_NAMESPACE)]
    build_namespace: String,
    /// Image with BuildKit and buildctl-daemonless.sh.
    #[arg(long, env = "SANDBOX_BUILDER_IMAGE", default_value = BUILDER_IMAGE)]
    builder_image: String,
    /// Confinement of builds. `user-namespace` needs nodes that support hostUsers: false.
    #[arg(
        long,
        env = "SANDBOX_BUILDER_ISOLATION",
        value_enum,
        default_value = "rootless"
    )]
    builder_isolation: BuilderIsolation,
    /// Image of this program, for the steps before and after a build.
    #[arg(
        long,
        env = "OPERATOR_IMAGE",
        default_value = "localhost/sandbox-operator:dev"
    )]
    operator_image: String,
    /// Docker configuration for the registries of API keys, as a Secret in the build namespace.
    #[arg(long, env = "SANDBOX_BUILD_REGISTRY_SECRET")]
    build_registry_secret: Option<String>,
    /// Registries that builds reach over HTTP, as HOST[:PORT], separated by commas.
    #[arg(long, env = "SANDBOX_BUILD_INSECURE_REGISTRIES", value_delimiter = ',')]
    build_insecure_registries: Vec<String>,
    /// Full builds at once.
    #[arg(long, env = "SANDBOX_MAX_BUILDS", default_value_t = 4, value_parser = at_least_one())]
    max_builds: usize,
    /// Full builds at once of one tenant.
    #[arg(long, env = "SANDBOX_MAX_BUILDS_PER_TENANT", default_value_t = 1, value_parser = at_least_one())]
    max_builds_per_tenant: usize,
    /// CPU limit of a full build.
    #[arg(long, env = "SANDBOX_BUILD_CPU", default_value = "2")]
    build_cpu: String,
    /// Memory limit of a full build.
    #[arg(long, env = "SANDBOX_BUILD_MEMORY", default_value = "4Gi")]
    build_memory: String,
    /// Disk space of a full build.
    #[arg(long, env = "SANDBOX_BUILD_DISK", default_value = "30Gi")]
    build_disk: String,
    /// Image pull Secrets in the build namespace, separated by commas.
    #[arg(long, env = "SANDBOX_BUILD_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    build_image_pull_secret: Vec<String>,
    /// Tolerations of full builds, as a JSON array like in a Pod.
    #[arg(long, env = "SANDBOX_BUILD_TOLERATIONS", value_name = "JSON", value_parser = parse_json::<Vec<Toleration>>)]
    build_tolerations: Option<Json<Vec<Toleration>>>,
    /// Node selector of full builds, as LABEL=VALUE, separated by commas.
    #[arg(long, env = "SANDBOX_BUILD_NODE_SELECTOR", value_delimiter = ',', value_parser = parse_label)]
    build_node_selector: Vec<(String, String)>,
    /// Runtime class of full builds.
    #[arg(long, env = "SANDBOX_BUILD_RUNTIME_CLASS")]
    build_runtime_class: Option<String>,
}

impl From<BuildArgs> for BuilderConfig {
    fn from(args: BuildArgs) -> Self {
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        let labels = args.build_node_selector.into_iter();
        Self {
            namespace: args.build_namespace,
            image: args.builder_image,
            isolation: args.builder_isolation,
            steps: BuildSteps::Containers {
                image: args.operator_image,
                registry_secret: present(args.build_registry_secret),
            },
            limits: BuildLimits {
                builds: args.max_builds,
                builds_per_tenant: args.max_builds_per_tenant,
                cpu: args.build_cpu,
                memory: args.build_memory,
                disk: args.build_disk,
            },
            insecure_registries: present_all(args.build_insecure_registries),
            pull_secrets: present_all(args.build_image_pull_secret),
            tolerations: args.build_tolerations.flatten().unwrap_or_default(),
            node_selector: labels.filter(|(name, _)| !name.is_empty()).collect(),
            runtime_class: present(args.build_runtime_class),
        }
    }
}

impl Default for BuilderConfig {
    /// The values of an empty command line, independent of the environment.
    fn default() -> Self {
        use clap::{Args as _, FromArgMatches as _};
        let command = BuildArgs::augment_args(clap::Command::new("builds").no_binary_name(true));
        let command = command.mut_args(|arg| arg.env(None::<&str>));
        let args = BuildArgs::from_arg_matches(&command.get_matches_from([""; 0]));
        args.unwrap_or_else(|error| error.exit()).into()
    }
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..=1000)
}
