//! Content of the executor's image, which the Pods of sandboxes mount as a volume. All of them share
//! one copy, read-only.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::paths::Paths;

const PROGRAM: &str = "sandbox-executor";

/// Copies the program, so that its file can be replaced while sandboxes run. This is done before
/// the first container starts, because a program that is open for writing cannot be executed.
/// Without a program, only the Pods that need it fail.
pub(crate) fn create(paths: &Paths, program: &Path) -> io::Result<()> {
    let directory = paths.executor();
    // Containers of an earlier process, which could use an older program, have ended.
    unless_missing(fs::remove_dir_all(&directory))?;
    fs::create_dir(&directory)?;
    let copy = directory.join(PROGRAM);
    let copied = fs::copy(program, &copy);
    unless_missing(copied.and_then(|_| fs::set_permissions(copy, Permissions::from_mode(0o755))))
}

/// Directory of the program.
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
