//! Kept roots of images: an overlay with kept changes for a pulled image, and one directory, which
//! is the root, for the others.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crds::contract::path::CHANGES_DIR;
use rustix::fs::syncfs;

use super::super::mount::Mount;
use super::super::overlay::UPPER;
use super::{HOST_IMAGE, Image, ImageError, PodIdentity, directory, etc_files, host_root, pulled};

/// Root in a generation, if it is not an overlay.
const ROOT: &str = "root";

impl Image {
    /// Identity of the content below the changes: changes of one image do not fit another.
    pub(crate) fn identity(&self) -> io::Result<String> {
        Ok(match self {
            Self::Executor => "executor".to_owned(),
            Self::Host => HOST_IMAGE.to_owned(),
            Self::Pulled(image) => image.digest.to_string(),
            Self::Directory(path) => {
                let found = fs::metadata(directory::root_of(path))?;
                format!("directory {}-{}", found.ino(), found.mtime())
            }
        })
    }

    /// Owner on disk of what root of the container owns. Only an overlay has no mapped ids.
    pub(crate) fn kept_owner(&self, owner: impl Fn(u32) -> u32) -> u32 {
        match self {
            Self::Pulled(_) => owner(0),
            Self::Executor | Self::Host | Self::Directory(_) => 0,
        }
    }

    /// Begins a kept root in the empty directory `kept`. `owner` gives the owner on disk of an id
    /// of the container, in changes of an overlay.
    pub(crate) fn begin_kept(
        &self,
        kept: &Path,
        pod_identity: &PodIdentity,
        owner: impl Fn(u32) -> u32,
    ) -> Result<(), ImageError> {
        let root = kept.join(ROOT);
        match self {
            Self::Pulled(image) => pulled::begin_kept(image, kept, owner)?,
            Self::Directory(path) => {
                directory::copy(path, &root)?;
                flush(&root)?;
            }
            Self::Executor => create_root(&root)?,
            Self::Host => {
                create_root(&root)?;
                host_root::begin_kept(&root, pod_identity)?;
                flush(&root)?;
            }
        }
        Ok(())
    }

    /// Mount that shows the supervisor the kept changes.
    pub(crate) fn shown_changes(&self, kept: &Path) -> Mount {
        let is_overlay = matches!(self, Self::Pulled(_));
        Mount::Volume {
            directory: kept.join(if is_overlay { UPPER } else { ROOT }),
            below: PathBuf::new(),
            to: CHANGES_DIR.into(),
            writable: false,
            mapped: !is_overlay,
        }
    }

    /// Mounts of a kept root. Files of the Pod are mounted over those of the root, which the
    /// workload may have replaced by anything.
    pub(crate) fn kept_root(
        &self,
        kept: &Path,
        scratch: &Path,
        executor: &Path,
        pod_identity: &PodIdentity,
    ) -> Result<Vec<Mount>, ImageError> {
        fs::create_dir_all(scratch)?;
        let plain = Mount::Bind {
            from: kept.join(ROOT),
            to: "/".into(),
            writable: true,
        };
        let mut mounts = match self {
            Self::Pulled(image) => pulled::kept_root(image, kept, scratch),
            Self::Directory(_) => vec![plain],
            Self::Host => [vec![plain], host_root::kept_mounts()].concat(),
            Self::Executor => {
                let executor = Mount::Bind {
                    from: executor.to_owned(),
                    to: "/sandbox-executor".into(),
                    writable: false,
                };
                vec![plain, executor]
            }
        };
        mounts.extend(pod_files(&scratch.join("pod-files"), pod_identity)?);
        Ok(mounts)
    }
}

/// Writes copies to disk, so that a generation is whole when its record is there.
fn flush(root: &Path) -> io::Result<()> {
    Ok(syncfs(File::open(root)?)?)
}

fn create_root(root: &Path) -> io::Result<()> {
    fs::create_dir(root)?;
    fs::set_permissions(root, Permissions::from_mode(0o755))
}

/// Creates the Pod's own files of `/etc` in a new directory, and mounts them.
fn pod_files(directory: &Path, pod_identity: &PodIdentity) -> io::Result<Vec<Mount>> {
    fs::create_dir(directory)?;
    etc_files::pod(directory, pod_identity)?;
    let mount = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok(Mount::Bind {
            from: entry.path(),
            to: PathBuf::from("/etc").join(entry.file_name()),
            writable: true,
        })
    };
    fs::read_dir(directory)?.map(mount).collect()
}
