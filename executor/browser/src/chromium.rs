//! The program: where images have it, and how it is started (section 4.3).

use std::path::{Path, PathBuf};

use tokio::process::Command;

mod flags;
mod search;

pub use self::search::find;

/// Choices for one start of Chromium.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    pub program: PathBuf,
    /// Directory of mode 0700 that the browser user owns.
    pub profile: PathBuf,
    /// True to give each site its own process, which the headless shell does not do by itself.
    pub isolates_sites: bool,
}

impl LaunchOptions {
    /// Command without user, environment and pipes.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(flags::FLAGS);
        if !is_headless_only(&self.program) {
            command.arg("--headless=new");
        }
        let mut profile = std::ffi::OsString::from("--user-data-dir=");
        profile.push(&self.profile);
        command.arg(profile);
        if self.isolates_sites {
            command.arg("--site-per-process");
        }
        command
    }
}

/// The headless shell has no other mode, and half the memory.
fn is_headless_only(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.contains("headless"))
}
