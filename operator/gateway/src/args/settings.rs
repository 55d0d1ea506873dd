//! Flags for [`ApiSettings`], which a gateway and a standalone process have in common.

use clap::builder::FalseyValueParser;
use secrecy::{ExposeSecret as _, SecretString};

use crate::ApiSettings;

#[derive(Debug, Clone, clap::Args)]
pub struct SettingsArgs {
    /// Administrator password. If unset, the admin API is disabled.
    #[arg(long, env = "ADMIN_PASSWORD", hide_env_values = true)]
    admin_password: Option<SecretString>,

    /// Let stored warm runtime configs override the others by name, instead of hiding all.
    #[arg(
        long,
        env = "WARM_RUNTIME_CONFIG_OVERLAY",
        value_parser = FalseyValueParser::new()
    )]
    warm_runtime_config_overlay: bool,

    /// Upper bound of the resource factor of a start; must be the same for the controller.
    #[arg(
        long = "gateway-max-resource-factor",
        env = "SANDBOX_MAX_RESOURCE_FACTOR",
        default_value_t = 8.0,
        value_parser = resource_factor
    )]
    max_resource_factor: f64,

    /// Image repository for clients that name no image; they append /runtime.
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
            // Charts set the variable of an absent value to the empty text.
            admin_password: password.filter(|p| !p.expose_secret().is_empty()),
            overlay_stored_configs: args.warm_runtime_config_overlay,
            max_resource_factor: args.max_resource_factor,
            registry_prefix: args.registry_prefix,
        }
    }
}

fn resource_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok();
    factor
        .filter(|factor: &f64| factor.is_finite() && *factor > 0.0)
        .ok_or_else(|| "must be a number greater than 0".to_owned())
}
