//! Level of persistence on the command line.

use client::Level;

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(super) enum LevelArg {
    /// Files of the workspace
    Workspace,
    /// All changed files
    Root,
    /// Processes as well
    Memory,
}

impl From<LevelArg> for Level {
    fn from(level: LevelArg) -> Self {
        match level {
            LevelArg::Workspace => Self::Workspace,
            LevelArg::Root => Self::Root,
            LevelArg::Memory => Self::Memory,
        }
    }
}
