//! What an installation decides about its proxy alone.

/// Settings of the proxy.
#[derive(Debug, Clone)]
pub struct ProxyConfig {
    /// Whether a VS Code server that is reached by path sees `/{id}/vscode`. It answers below it
    /// if it was started with that base path, and then perhaps there alone.
    pub keep_vscode_prefix: bool,
    /// Requests under way at the same time to one sandbox, streams and tunnels included.
    pub requests_per_sandbox: usize,
}

impl ProxyConfig {
    /// Half of what one replica serves at all, so that no sandbox is everybody's limit.
    pub const REQUESTS_PER_SANDBOX: usize = 8192;
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            keep_vscode_prefix: false,
            requests_per_sandbox: Self::REQUESTS_PER_SANDBOX,
        }
    }
}
