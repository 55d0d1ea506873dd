//! Settings of what a pause keeps besides the workspace, and their flags.

use std::fmt;
use std::str::FromStr;

use clap::builder::FalseyValueParser;
use crds::contract::persistence::{LevelError, PersistenceLevel, SaveLimits};

use shared::quantity;

/// Settings of the state that pauses keep besides the workspace.
#[derive(Debug, Clone)]
pub struct PersistenceSettings {
    /// Level of sandboxes that set none.
    pub default_level: DefaultLevel,
    pub root: RootPersistence,
    /// Level `Memory` is allowed: its Pods have no seccomp filter.
    pub memory: bool,
    pub limits: SaveLimits,
}

impl Default for PersistenceSettings {
    fn default() -> Self {
        Self {
            default_level: DefaultLevel::Auto,
            root: RootPersistence::Auto,
            memory: false,
            limits: SaveLimits {
                bytes: 10 << 30,
                files: 1_000_000,
                seconds: 120,
            },
        }
    }
}

/// Level of sandboxes that set none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultLevel {
    /// `Root` for sandboxes of the gateway whose changed files are on the volume at any time, so that
    /// keeping them costs a pause nothing; `Workspace` for others.
    #[default]
    Auto,
    Level(PersistenceLevel),
}

impl FromStr for DefaultLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text {
            "auto" => Ok(Self::Auto),
            level => level.parse().map(Self::Level),
        }
    }
}

impl fmt::Display for DefaultLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Level(level) => level.fmt(f),
        }
    }
}

/// The way in which files outside of the workspace are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum RootPersistence {
    /// An overlay where a probe shows that this works, else an archive.
    #[default]
    Auto,
    /// An archive of the changed files. Works in every cluster, for sandboxes that start as root.
    Archive,
    /// An overlay on the volume. Requires user namespaces for Pods.
    Overlay,
    /// None: a pause keeps the workspace only.
    None,
    /// The node of a standalone process.
    #[value(skip)]
    Node,
}

/// Flags of what pauses keep besides the workspace.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Persistence of sandboxes beyond their workspace")]
pub struct PersistenceArgs {
    /// Level of sandboxes without `spec.persistence`: Workspace, Root or Memory; auto: Root for those
    /// of clients where an overlay keeps changed files, else Workspace.
    #[arg(long, env = "SANDBOX_DEFAULT_PERSISTENCE", default_value_t)]
    default_persistence: DefaultLevel,
    /// Mechanism for sandboxes with `spec.persistence: Root` or `Memory`.
    #[arg(
        long,
        env = "SANDBOX_ROOT_PERSISTENCE",
        value_enum,
        default_value = "auto"
    )]
    root_persistence: RootPersistence,
    /// Allow level Memory, whose Pods have no seccomp filter, since processes under one cannot be
    /// saved. Otherwise such sandboxes have level Root.
    #[arg(long, env = "SANDBOX_MEMORY_PERSISTENCE", value_parser = FalseyValueParser::new())]
    memory_persistence: bool,
    /// Maximum size of what a pause keeps besides the workspace.
    #[arg(long, env = "SANDBOX_PERSISTENCE_MAX_SIZE", value_name = "QUANTITY", default_value = "10Gi", value_parser = parse_bytes)]
    persistence_max_size: u64,
    /// Maximum number of files that a pause keeps besides the workspace.
    #[arg(
        long,
        env = "SANDBOX_PERSISTENCE_MAX_FILES",
        default_value_t = 1_000_000
    )]
    persistence_max_files: u64,
    /// Maximum time of a save in seconds, after the command has stopped.
    #[arg(long, env = "SANDBOX_SAVE_TIMEOUT_SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    save_timeout_seconds: u64,
}

impl PersistenceArgs {
    /// Settings of these flags.
    pub fn settings(&self) -> PersistenceSettings {
        PersistenceSettings {
            default_level: self.default_persistence,
            root: self.root_persistence,
            memory: self.memory_persistence,
            limits: SaveLimits {
                bytes: self.persistence_max_size,
                files: self.persistence_max_files,
                seconds: self.save_timeout_seconds,
            },
        }
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    quantity::whole(text, 1.0)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("{text:?} is not a quantity (examples: 500Mi, 2Gi)"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        persistence: PersistenceArgs,
    }

    #[test]
    fn default_flags_equal_default_settings() {
        let flags = Command::try_parse_from(["x"]).unwrap().persistence;
        let (flags, defaults) = (flags.settings(), PersistenceSettings::default());
        assert_eq!((flags.root, flags.limits), (defaults.root, defaults.limits));
        assert_eq!(flags.default_level, defaults.default_level);
    }

    #[test]
    fn invalid_limits_are_rejected() {
        for flag in [
            "--default-persistence=all",
            "--persistence-max-size=much",
            "--persistence-max-size=0",
            "--save-timeout-seconds=0",
            "--root-persistence=node",
        ] {
            assert!(Command::try_parse_from(["x", flag]).is_err(), "{flag}");
        }
    }
}
