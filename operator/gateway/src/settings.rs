//! Settings of the API besides the sandboxes: administration and images.

use secrecy::SecretString;

/// Upper bound of `resource_factor` that controller and gateway have by default.
const DEFAULT_MAX_RESOURCE_FACTOR: f64 = 8.0;

/// Settings of the API, the same for a gateway and a standalone process.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Password of the administrator; without one, administration is disabled.
    pub admin_password: Option<SecretString>,
    /// True if stored warm runtime configs override the others one by one; otherwise the first
    /// stored one hides all others (`docs/specs/runtime-api.md`, section 1.11).
    pub overlay_stored_configs: bool,
    /// Upper bound of `resource_factor`; the controller has the same.
    pub max_resource_factor: f64,
    /// Image repository for clients that name no image; they append `/runtime`.
    pub registry_prefix: String,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            admin_password: None,
            overlay_stored_configs: false,
            max_resource_factor: DEFAULT_MAX_RESOURCE_FACTOR,
            registry_prefix: "ghcr.io/openhands".into(),
        }
    }
}
