//! Files for uploads, found with the rights of the browser's user: an agent must not learn through the
//! browser which files exist that it may not see.

use std::fmt::{self, Debug, Formatter};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

type Finder = dyn Fn(PathBuf) -> BoxFuture<'static, io::Result<FoundFile>> + Send + Sync;

/// Finds files by paths, relative ones below a directory.
#[derive(Clone)]
pub struct UploadFiles {
    directory: PathBuf,
    find: Arc<Finder>,
}

/// A path in full, and whether it is a directory.
#[derive(Debug)]
pub struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) is_directory: io::Result<bool>,
}

impl FoundFile {
    /// Looks at an absolute path with the rights of this thread. Blocks.
    pub fn at(path: &Path) -> Self {
        // The protocol has no other texts than UTF-8.
        let real = fs::canonicalize(path).ok();
        let real = real.filter(|path| path.to_str().is_some());
        let path = real.unwrap_or_else(|| without_dots(path));
        let is_directory = fs::metadata(&path).map(|found| found.is_dir());
        Self { path, is_directory }
    }
}

impl UploadFiles {
    /// `find` runs [`FoundFile::at`] as the user of the browser.
    pub fn new(
        directory: PathBuf,
        find: impl Fn(PathBuf) -> BoxFuture<'static, io::Result<FoundFile>> + Send + Sync + 'static,
    ) -> Self {
        let find = Arc::new(find);
        Self { directory, find }
    }

    /// Finds files with the rights of this process.
    pub fn of_process(directory: impl Into<PathBuf>) -> Self {
        Self::new(directory.into(), |path| {
            let finding = tokio::task::spawn_blocking(move || FoundFile::at(&path));
            finding.map(|found| found.map_err(io::Error::other)).boxed()
        })
    }

    /// Never fails: a file that cannot be looked for is one that is not found.
    pub(super) async fn find(&self, file: &str) -> FoundFile {
        let path = self.directory.join(file);
        let found = (self.find)(path.clone()).await;
        found.unwrap_or_else(|error| FoundFile {
            path: without_dots(&path),
            is_directory: Err(error),
        })
    }
}

impl Debug for UploadFiles {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UploadFiles").field(&self.directory).finish()
    }
}

/// Resolves `.` and `..` of a path that does not exist.
fn without_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            other => resolved.push(other),
        }
    }
    resolved
}
