//! Flags of the gateway. Each is also an environment variable, which the chart sets.

mod settings;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use ipnet::IpNet;

use super::{ApiSettings, GatewayConfig, ProxyConfig, RuntimeClasses, WorkspaceConfig};
use shared::urls::Urls;

pub use settings::SettingsArgs;

#[derive(Debug, Clone, clap::Args)]
pub struct GatewayArgs {
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

    /// Runtime class of sandboxes that request none. Default: that of the controller.
    #[arg(long, env = "GATEWAY_RUNTIME_CLASS")]
    pub runtime_class: Option<String>,

    /// Runtime classes that clients may request, separated by commas.
    #[arg(long, env = "GATEWAY_RUNTIME_CLASSES", value_delimiter = ',')]
    pub runtime_classes: Vec<String>,

    /// Runtime class that the name gvisor stands for.
    #[arg(long, env = "GATEWAY_GVISOR_CLASS", default_value = "gvisor")]
    pub gvisor_class: String,

    /// Reject unknown runtime classes instead of using the default.
    #[arg(long, env = "GATEWAY_STRICT_RUNTIME_CLASSES")]
    pub strict_runtime_classes: bool,

    /// Seconds that a request is held for a sandbox that restarts or moves.
    #[arg(long, env = "GATEWAY_HOLD_SECONDS", default_value_t = 120)]
    pub hold_seconds: u64,

    /// Seconds that new connections are still accepted after the shutdown signal. The replica is
    /// not ready in this time, so that load balancers can react.
    #[arg(long, env = "GATEWAY_DRAIN_DELAY_SECONDS", default_value_t = 5)]
    pub drain_delay_seconds: u64,

    /// Seconds that open requests may continue after that.
    #[arg(long, env = "GATEWAY_DRAIN_SECONDS", default_value_t = 20)]
    pub drain_seconds: u64,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Maximum number of connections at the same time.
    #[arg(
        long,
        env = "GATEWAY_MAX_CONNECTIONS",
        default_value_t = 16_384,
        value_parser = positive_number()
    )]
    pub max_connections: usize,

    /// Maximum number of concurrent connections from one address or IPv6 /64 network; 0: no limit. Trusted
    /// proxies are exempt. Only useful where the gateway sees the addresses of clients
    #[arg(
        long,
        env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS",
        default_value_t = 4096
    )]
    pub max_connections_per_address: usize,

    /// Maximum number of requests in flight to one sandbox, including streams, tunnels and held
    /// requests.
    #[arg(
        long,
        env = "GATEWAY_MAX_REQUESTS_PER_SANDBOX",
        default_value_t = ProxyConfig::REQUESTS_PER_SANDBOX,
        value_parser = positive_number()
    )]
    pub max_requests_per_sandbox: usize,

    /// Maximum number of requests held for sandboxes that wake, restart or move.
    #[arg(
        long,
        env = "GATEWAY_MAX_HELD_REQUESTS",
        default_value_t = ProxyConfig::HELD_REQUESTS,
        value_parser = positive_number()
    )]
    pub max_held_requests: usize,

    /// Maximum number of concurrent connections to sandboxes
    #[arg(
        long,
        env = "GATEWAY_MAX_UPSTREAM_CONNECTIONS",
        default_value_t = ProxyConfig::UPSTREAM_CONNECTIONS,
        value_parser = positive_number()
    )]
    pub max_upstream_connections: usize,

    /// Memory of client connections and request heads, in MiB. Requests beyond it get 503
    #[arg(
        long,
        env = "GATEWAY_CLIENT_MEMORY_MIB",
        default_value_t = ProxyConfig::CLIENT_MEMORY_MIB,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=1 << 20)
    )]
    pub client_memory_mib: usize,

    /// Networks (CIDR) of proxies whose X-Forwarded-For is believed, separated by commas
    #[arg(long, env = "GATEWAY_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<IpNet>,

    /// Keep the prefix `/{id}/vscode` in the path of requests to VS Code.
    #[arg(long, env = "GATEWAY_KEEP_VSCODE_PREFIX")]
    pub keep_vscode_prefix: bool,
}

impl GatewayArgs {
    /// Returns the settings of the API.
    pub fn settings(&self) -> ApiSettings {
        self.settings.clone().into()
    }

    /// Returns the configuration of the gateway, without the address.
    pub fn config(self, urls: Urls) -> GatewayConfig {
        GatewayConfig {
            namespace: self.namespace,
            urls,
            workspace: WorkspaceConfig {
                size: self.workspace_size,
                storage_class: present(self.storage_class),
            },
            runtime_classes: RuntimeClasses {
                default: present(self.runtime_class),
                installed: self.runtime_classes.into_iter().collect(),
                gvisor: present(Some(self.gvisor_class)),
                strict: self.strict_runtime_classes,
            },
            hold_limit: Duration::from_secs(self.hold_seconds),
            start_wait: Duration::from_secs(1),
            drain_delay: Duration::from_secs(self.drain_delay_seconds),
            drain_limit: Duration::from_secs(self.drain_seconds),
            max_connections: self.max_connections,
            max_connections_per_address: NonZeroUsize::new(self.max_connections_per_address),
            local_only: false,
            proxy: ProxyConfig {
                keep_vscode_prefix: self.keep_vscode_prefix,
                requests_per_sandbox: self.max_requests_per_sandbox,
                held_requests: self.max_held_requests,
                upstream_connections: self.max_upstream_connections,
                client_memory: self.client_memory_mib << 20,
                trusted_proxies: self.trusted_proxies,
                ..ProxyConfig::default()
            },
            vitals: Arc::default(),
        }
    }
}

/// Parses a limit: 0 would block every client, and a semaphore has an upper bound.
fn positive_number() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 24)
}

/// Treats empty text as absent: charts set the variable of an absent value to the empty text.
fn present(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        gateway: GatewayArgs,
    }

    #[test]
    fn limits_come_from_flags_and_must_be_positive() {
        let flags = [
            "--max-connections",
            "--max-requests-per-sandbox",
            "--max-held-requests",
        ];
        for flag in flags {
            for odd in ["0", "-1", "16777217", "many"] {
                let line = format!("{flag}={odd}");
                assert!(TestArgs::try_parse_from(["x", &line]).is_err(), "{line}");
            }
        }
        let line = flags.map(|flag| format!("{flag}=7"));
        let line = std::iter::once("x").chain(line.iter().map(String::as_str));
        let args = TestArgs::parse_from(line).gateway;
        let urls = Urls {
            scheme: shared::urls::Scheme::Http,
            base: "localhost".into(),
            form: shared::urls::UrlForm::Nested,
        };
        let config = args.config(urls);
        let proxy = &config.proxy;
        assert_eq!(
            (
                config.max_connections,
                proxy.requests_per_sandbox,
                proxy.held_requests
            ),
            (7, 7, 7)
        );
    }
}
