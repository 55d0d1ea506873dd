//! What an installation decides about its proxy alone.

/// Settings of the proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Whether a VS Code server that is reached by path sees `/{id}/vscode`. It answers below it
    /// if it was started with that base path, and then perhaps there alone.
    pub keep_vscode_prefix: bool,
    /// Requests under way at the same time to one sandbox, streams, tunnels and those included that
    /// wait for it.
    pub requests_per_sandbox: usize,
    /// Requests that wait at the same time for any sandbox to come back.
    pub held_requests: usize,
}

impl ProxyConfig {
    /// Half of what one replica serves at all, so that no sandbox is everybody's limit.
    pub const REQUESTS_PER_SANDBOX: usize = 8192;
    /// As many as there are connections of clients by default: a few KiB each.
    pub const HELD_REQUESTS: usize = 16_384;
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            keep_vscode_prefix: false,
            requests_per_sandbox: Self::REQUESTS_PER_SANDBOX,
            held_requests: Self::HELD_REQUESTS,
        }
    }
}
