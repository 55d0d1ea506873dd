//! Last step: the image of the builder, into the registry.

use std::path::PathBuf;

use images::{Reference, push_layout};

use crate::{BuiltImage, RegistryAccess, StepError};

/// Flags of the step.
#[derive(Debug, Clone, clap::Args)]
pub struct PushArgs {
    /// Name of the image. May be repeated for one repository.
    #[arg(long = "target", value_name = "REFERENCE", required = true)]
    pub targets: Vec<Reference>,
    /// Build context in the registry, by its digest: it is deleted afterwards.
    #[arg(long, value_name = "REFERENCE")]
    pub context: Option<Reference>,
    /// OCI layout with the image.
    #[arg(long, value_name = "DIRECTORY")]
    pub layout: PathBuf,
    #[command(flatten)]
    pub registries: RegistryAccess,
}

impl PushArgs {
    /// Uploads the image, and names it by all targets.
    pub async fn run(&self) -> Result<BuiltImage, StepError> {
        let (registry, credentials) = self.registries.open().await?;
        let pushed = push_layout(&self.layout, &self.targets, &registry, &credentials).await?;
        if let Some(context) = &self.context
            && let Err(error) = registry.delete_manifest(context, &credentials).await
        {
            // Its retention rules will.
            tracing::info!(%error, "the registry does not delete the build context");
        }
        Ok(BuiltImage {
            digest: pushed.digest.to_string(),
            size_bytes: pushed.size,
        })
    }
}
