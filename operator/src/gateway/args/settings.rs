//! Flags of the API beside the sandboxes, which a gateway and a standalone process have in common.

use clap::builder::FalseyValueParser;
use secrecy::{ExposeSecret as _, SecretString};

use crate::gateway::ApiSettings;

#[derive(Debug, Clone, clap::Args)]
pub struct SettingsArgs {
    /// Password of the administrator of warm runtime configs; none: nobody is.
    #[arg(long, env = "ADMIN_PASSWORD", hide_env_values = true)]
    admin_password: Option<SecretString>,

    /// Stored warm runtime configs override the others by name, instead of hiding them all.
    #[arg(
        long,
        env = "WARM_RUNTIME_CONFIG_OVERLAY",
        value_parser = FalseyValueParser::new()
    )]
    warm_runtime_config_overlay: bool,

    /// Where clients that name no image look for one; they append /runtime.
    #[arg(
        long,
        env = "GATEWAY_REGISTRY_PREFIX",
        default_value = "ghcr.io/openhands"
    )]
    registry_prefix: String,
}

impl From<SettingsArgs> for ApiSettings {
    fn from(args: SettingsArgs) -> Self {
        let password = args.admin_password;
        Self {
            // Charts set variables to the empty text when a value is absent.
            admin_password: password.filter(|p| !p.expose_secret().is_empty()),
            overlay_stored_configs: args.warm_runtime_config_overlay,
            registry_prefix: args.registry_prefix,
        }
    }
}
