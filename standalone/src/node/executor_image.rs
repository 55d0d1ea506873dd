//! Content of the executor's image, which the Pods of sandboxes mount as a volume. All of them share
//! one copy, read-only.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::NodeConfig;
use super::paths::Paths;

const PROGRAM: &str = "sandbox-executor";
const CRIU: &str = "criu";

/// Copies the programs, so that their files can be replaced while sandboxes run. This is done before
/// the first container starts, because a program that is open for writing cannot be executed.
/// Without a program, only the Pods that need it fail.
pub(crate) fn create(paths: &Paths, config: &NodeConfig) -> io::Result<()> {
    let directory = paths.executor();
    // Containers of an earlier process, which could use an older program, have ended.
    unless_missing(fs::remove_dir_all(&directory))?;
    fs::create_dir(&directory)?;
    copy(&config.executor_binary, &directory.join(PROGRAM))?;
    match &config.criu {
        Some(criu) => copy(criu, &directory.join(CRIU)),
        None => Ok(()),
    }
}

fn copy(program: &Path, to: &Path) -> io::Result<()> {
    let copied = fs::copy(program, to);
    unless_missing(copied.and_then(|_| fs::set_permissions(to, Permissions::from_mode(0o755))))
}

/// Directory of the programs.
pub(crate) fn content(paths: &Paths) -> io::Result<PathBuf> {
    let directory = paths.executor();
    directory.join(PROGRAM).metadata()?;
    Ok(directory)
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
