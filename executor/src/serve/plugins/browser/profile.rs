//! Profile of the browser: cookies, logins, cache. It outlives the process, so that a restart loses
//! as little as possible; on the workspace it outlives a pause.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::serve::identity::Identity;
use crate::serve::private_dir::PrivateDir;

/// Folder of a profile on the workspace.
const FOLDER: &str = ".browser_profile";
/// Links of a browser that was killed; another one would take the profile for one in use.
const LOCKS: [&str; 3] = ["SingletonLock", "SingletonSocket", "SingletonCookie"];

#[derive(Debug)]
pub(super) enum Profile {
    /// Removed with the server.
    Private(PrivateDir),
    Workspace(PathBuf),
}

impl Profile {
    pub(super) async fn private(identity: &Arc<Identity>, fallback: &Path) -> io::Result<Self> {
        let created = PrivateDir::create(identity, fallback, |_| Vec::new());
        created.await.map(Self::Private)
    }

    pub(super) async fn on_workspace(identity: &Identity, workspace: &Path) -> io::Result<Self> {
        let directory = workspace.join(FOLDER);
        let creating = identity.run(move || {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&directory)?;
            fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
            Ok(Self::Workspace(directory))
        });
        creating.await?
    }

    /// The directory, without the locks of an earlier browser.
    pub(super) async fn unlocked(&self, identity: &Identity) -> io::Result<PathBuf> {
        let directory = match self {
            Self::Private(private) => private.directory.clone(),
            Self::Workspace(directory) => directory.clone(),
        };
        let unlocking = identity.run(move || {
            for lock in LOCKS {
                match fs::remove_file(directory.join(lock)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(directory)
        });
        unlocking.await?
    }

    pub(super) async fn remove(&self) {
        if let Self::Private(private) = self {
            private.remove().await;
        }
    }
}
