//! Client of the registries of a step, and its credentials.

use std::path::PathBuf;

use images::{Credentials, Registry, RegistrySettings};

use crate::StepError;

/// Ways to registries.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RegistryAccess {
    /// Credentials, in the format of Docker's config.json. Default: none.
    #[arg(long = "registry-config", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Registries that are reached over HTTP, as HOST[:PORT], separated by commas.
    #[arg(
        long = "insecure-registries",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub insecure: Vec<String>,
}

impl RegistryAccess {
    pub(crate) async fn open(&self) -> Result<(Registry, Credentials), StepError> {
        let mut settings = RegistrySettings::default();
        let insecure = self.insecure.iter().filter(|host| !host.is_empty());
        settings.insecure.extend(insecure.cloned());
        let registry = Registry::new(&settings)?;
        let Some(path) = &self.config else {
            return Ok((registry, Credentials::default()));
        };
        let text = tokio::fs::read(path).await;
        let text = text.map_err(|error| StepError::Config(error.to_string()))?;
        Ok((registry, Credentials::parse(&text)?))
    }
}
