//! Configuration of the proxy.

use crds::contract::CONTROL_PORT;
use ipnet::IpNet;

/// Configuration of the proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// True if a VS Code server that is reached by path sees `/{id}/vscode`. A server that was
    /// started with that base path may answer below it only.
    pub keep_vscode_prefix: bool,
    /// Maximum of concurrent requests to one sandbox, including streams, tunnels and held requests.
    pub requests_per_sandbox: usize,
    /// Maximum of held requests of all sandboxes.
    pub held_requests: usize,
    /// Allows Pods on loopback addresses, for one machine whose Pods share the host network.
    pub loopback_pods: bool,
    /// Port of the supervisors.
    pub control_port: u16,
    /// Maximum of concurrent connections to sandboxes.
    pub upstream_connections: usize,
    /// Memory of client connections and request heads in bytes.
    pub client_memory: usize,
    /// Networks of proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl ProxyConfig {
    /// An eighth of the default number of connections, so that one sandbox cannot take most of them.
    pub const REQUESTS_PER_SANDBOX: usize = 2048;
    /// The default number of client connections; a held request takes a few KiB.
    pub const HELD_REQUESTS: usize = 16_384;
    /// The default number of client connections.
    pub const UPSTREAM_CONNECTIONS: usize = 16_384;
    /// Half of the memory limit of the chart, in MiB.
    pub const CLIENT_MEMORY_MIB: usize = 512;
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            keep_vscode_prefix: false,
            requests_per_sandbox: Self::REQUESTS_PER_SANDBOX,
            held_requests: Self::HELD_REQUESTS,
            loopback_pods: false,
            control_port: CONTROL_PORT,
            upstream_connections: Self::UPSTREAM_CONNECTIONS,
            client_memory: Self::CLIENT_MEMORY_MIB << 20,
            trusted_proxies: Vec::new(),
        }
    }
}
