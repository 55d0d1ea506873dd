//! What an installation decides about the API beside the sandboxes: who administers it, and what
//! it says about images.

use secrecy::SecretString;

/// Settings of the API.
#[derive(Debug, Clone)]
pub struct ApiSettings {
    /// Password of the administrator; without one, administration is disabled.
    pub admin_password: Option<SecretString>,
    /// Whether stored warm runtime configs override the others one by one; otherwise the first
    /// stored one hides all others (runtime API spec 1.11).
    pub overlay_stored_configs: bool,
    /// Where clients that name no image look for one: they append `/runtime`.
    pub registry_prefix: String,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            admin_password: None,
            overlay_stored_configs: false,
            registry_prefix: "ghcr.io/openhands".into(),
        }
    }
}
