//! Treatment of image builds, which gateway and controller have to agree on.

use std::fmt;
use std::str::FromStr;

/// Answer of the runtime API to clients that want an image built (`docs/builds.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageBuilds {
    /// Builds are rejected, and every image counts as existing.
    #[default]
    Off,
    /// A built image is another name of its base image.
    Alias,
    /// As alias; but an image whose parent is in the registry is made there, by one more layer.
    Append,
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
            _ => Err("must be off, alias or append"),
        }
    }
}

impl fmt::Display for ImageBuilds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Alias => "alias",
            Self::Append => "append",
        })
    }
}
