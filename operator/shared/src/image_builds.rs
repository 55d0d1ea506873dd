//! Treatment of image builds, which gateway and controller have to agree on.

use std::fmt;
use std::str::FromStr;

/// Namespace of the Pods of full builds, and of their logs.
pub const DEFAULT_NAMESPACE: &str = "sandbox-builds";
/// Key of the log of a full build in its `ConfigMap`, which has the name of the build.
pub const LOG_KEY: &str = "log";
/// Container that runs the instructions of a Dockerfile.
pub const BUILD_CONTAINER: &str = "build";

/// Reasons of failures that are not the client's fault.
pub mod reason {
    pub const REGISTRY_ERROR: &str = "RegistryError";
    pub const DISK_ERROR: &str = "DiskError";
    pub const INTERRUPTED: &str = "Interrupted";
    pub const BUILDER_ERROR: &str = "BuilderError";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// The build never began.
    pub const QUEUE_EXPIRED: &str = "QueueExpired";
}

/// Answer of the runtime API to clients that want an image built (`docs/builds.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ImageBuilds {
    /// Builds are rejected, and every image counts as existing.
    #[default]
    Off,
    /// A built image is another name of its base image.
    Alias,
    /// As alias; but an image whose parent is in the registry is made there, by one more layer.
    Append,
    /// As append; and a Dockerfile of any other kind runs in a Pod.
    Full,
}

impl ImageBuilds {
    pub fn is_on(self) -> bool {
        self != Self::Off
    }
}

impl FromStr for ImageBuilds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            // Charts set the variable of an absent value to the empty text.
            "off" | "" => Ok(Self::Off),
            "alias" => Ok(Self::Alias),
            "append" => Ok(Self::Append),
            "full" => Ok(Self::Full),
            _ => Err("must be off, alias, append or full"),
        }
    }
}

impl fmt::Display for ImageBuilds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Alias => "alias",
            Self::Append => "append",
            Self::Full => "full",
        })
    }
}
