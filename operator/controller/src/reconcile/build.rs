//! Pure builders of the owned objects (Pod, PVC, Secret) from a Sandbox and the configuration.

pub mod command;
mod container;
mod context;
pub mod environment_secret;
mod error;
mod init_container;
pub mod pod;
mod pod_template;
pub mod resources;
mod security_profile;
mod template_policy;
#[cfg(test)]
pub(crate) mod tests;
mod volumes;
pub mod workspace_claim;

pub use context::{BuildContext, PodParams};
pub use error::BuildError;
