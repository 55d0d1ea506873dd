//! Steps of a full image build around the builder (`docs/builds.md`). They have the credentials of
//! the registry, and run apart from the instructions of the Dockerfile, which are untrusted.

mod fetch;
mod push;
mod registries;

use std::io;

use images::{CredentialsError, LayoutError, RegistryError};
use serde::{Deserialize, Serialize};

pub use fetch::FetchArgs;
pub use push::PushArgs;
pub use registries::RegistryAccess;

/// Content of the directory that the first step fills.
pub mod directory {
    /// Files of the build context.
    pub const CONTEXT: &str = "context";
    /// OCI layout of the base image.
    pub const BASE: &str = "base";
    /// Settings of the builder, a file.
    pub const BUILDER_CONFIG: &str = "buildkitd.toml";
}

/// A step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("Docker configuration: {0}")]
    Config(String),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("build context {0} is not one layer")]
    Context(String),
    #[error("build context cannot be unpacked: {0}")]
    Unpack(#[source] io::Error),
    #[error("settings of the builder cannot be written: {0}")]
    Write(#[source] io::Error),
    #[error("build context exceeds {} MiB", fetch::MAX_CONTEXT_BYTES >> 20)]
    LargeContext,
}

impl From<CredentialsError> for StepError {
    fn from(error: CredentialsError) -> Self {
        Self::Config(error.to_string())
    }
}

/// Image that a build has made, as the termination message of its last step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltImage {
    /// Digest of the manifest.
    pub digest: String,
    /// Bytes of configuration and layers in the registry.
    pub size_bytes: u64,
}
