//! Removal of directory trees, including directories without write permission.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Removes a tree. A failure is logged; the next start tries again.
pub(crate) fn remove(path: &Path) {
    let removed = fs::remove_dir_all(path).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        _ => Err(error),
    });
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "directory not removed");
        }
        _ => {}
    }
}

/// Restores access to directories: without root, the node owns them but may lack permission.
fn open_up(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return;
    };
    if !metadata.is_dir() {
        return;
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path());
    }
}
