//! Flags of the gateway. Every one is also an environment variable, for charts.

mod settings;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::{ApiSettings, GatewayConfig, ProxyConfig, RuntimeClasses, WorkspaceConfig};
use crate::urls::Urls;

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

    /// Size of a sandbox's workspace.
    #[arg(long, env = "GATEWAY_WORKSPACE_SIZE", default_value = "10Gi")]
    pub workspace_size: String,

    /// Storage class of workspaces. Absent: the cluster's default.
    #[arg(long, env = "GATEWAY_STORAGE_CLASS")]
    pub storage_class: Option<String>,

    /// Runtime class of sandboxes that ask for none. Absent: the controller's default.
    #[arg(long, env = "GATEWAY_RUNTIME_CLASS")]
    pub runtime_class: Option<String>,

    /// Runtime classes that clients may ask for, separated by commas.
    #[arg(long, env = "GATEWAY_RUNTIME_CLASSES", value_delimiter = ',')]
    pub runtime_classes: Vec<String>,

    /// The runtime class that clients mean by gvisor.
    #[arg(long, env = "GATEWAY_GVISOR_CLASS", default_value = "gvisor")]
    pub gvisor_class: String,

    /// Refuse unknown runtime classes instead of using the default.
    #[arg(long, env = "GATEWAY_STRICT_RUNTIME_CLASSES")]
    pub strict_runtime_classes: bool,

    /// Seconds that a request waits for a sandbox that restarts or moves.
    #[arg(long, env = "GATEWAY_HOLD_SECONDS", default_value_t = 120)]
    pub hold_seconds: u64,

    /// Seconds that new connections are still accepted after a shutdown was asked for, while the
    /// replica is no longer ready: load balancers take a moment to notice.
    #[arg(long, env = "GATEWAY_DRAIN_DELAY_SECONDS", default_value_t = 5)]
    pub drain_delay_seconds: u64,

    /// Seconds that open requests may go on after that.
    #[arg(long, env = "GATEWAY_DRAIN_SECONDS", default_value_t = 20)]
    pub drain_seconds: u64,

    #[command(flatten)]
    settings: SettingsArgs,

    /// Connections served at the same time.
    #[arg(
        long,
        env = "GATEWAY_MAX_CONNECTIONS",
        default_value_t = 16_384,
        value_parser = a_number()
    )]
    pub max_connections: usize,

    /// Connections served at the same time from one address, or from one IPv6 network of 64 bits; 0:
    /// as many as from all. Of use only where the addresses of clients are seen.
    #[arg(long, env = "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS", default_value_t = 0)]
    pub max_connections_per_address: usize,

    /// Requests under way at the same time to one sandbox: streams, tunnels and those included that
    /// wait for it.
    #[arg(
        long,
        env = "GATEWAY_MAX_REQUESTS_PER_SANDBOX",
        default_value_t = ProxyConfig::REQUESTS_PER_SANDBOX,
        value_parser = a_number()
    )]
    pub max_requests_per_sandbox: usize,

    /// Requests that wait at the same time for sandboxes that wake, restart or move.
    #[arg(
        long,
        env = "GATEWAY_MAX_HELD_REQUESTS",
        default_value_t = ProxyConfig::HELD_REQUESTS,
        value_parser = a_number()
    )]
    pub max_held_requests: usize,

    /// Forward requests to VS Code with `/{id}/vscode` before their path, as they came.
    #[arg(long, env = "GATEWAY_KEEP_VSCODE_PREFIX")]
    pub keep_vscode_prefix: bool,
}

impl GatewayArgs {
    /// The installation's decisions about the API beside the sandboxes.
    pub fn settings(&self) -> ApiSettings {
        self.settings.clone().into()
    }

    /// The installation's decisions, without the address.
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
            },
            vitals: Arc::default(),
        }
    }
}

/// How many there may be of something: none would serve nobody, and a semaphore counts only so far.
fn a_number() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1 << 24)
}

/// Charts set variables to the empty text when a value is absent.
fn present(text: Option<String>) -> Option<String> {
    text.filter(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        gateway: GatewayArgs,
    }

    #[test]
    fn bounds_are_taken_from_the_line_and_serve_somebody() {
        let flags = [
            "--max-connections",
            "--max-requests-per-sandbox",
            "--max-held-requests",
        ];
        for flag in flags {
            for odd in ["0", "-1", "16777217", "many"] {
                let line = format!("{flag}={odd}");
                assert!(Line::try_parse_from(["x", &line]).is_err(), "{line}");
            }
        }
        let line = flags.map(|flag| format!("{flag}=7"));
        let line = std::iter::once("x").chain(line.iter().map(String::as_str));
        let args = Line::parse_from(line).gateway;
        let urls = Urls {
            scheme: crate::urls::Scheme::Http,
            base: "localhost".into(),
            form: crate::urls::UrlForm::Nested,
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
