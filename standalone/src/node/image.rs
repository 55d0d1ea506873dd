//! Image references and root file systems. There is no registry: an image is an unpacked directory,
//! the executor's own image, or the host.

mod directory;
mod etc_files;
mod host_root;
mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::mount::Mount;
use super::node_user::NodeUser;

/// Default reference of the executor's image.
pub const EXECUTOR_IMAGE: &str = "localhost/sandbox-executor:dev";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Uid and gid of `openhands`, the user of agents.
const OPENHANDS: u32 = 1000;

/// Image references and their root file systems.
#[derive(Debug, Clone)]
pub struct ImageTable {
    /// Exact references to unpacked directories: a root, or an OCI bundle (`rootfs`,
    /// `config.json`).
    pub directories: BTreeMap<String, PathBuf>,
    /// Reference of the image that contains only the executor.
    pub executor: String,
    /// True if every other reference uses the host's own programs.
    pub host_fallback: bool,
}

impl Default for ImageTable {
    fn default() -> Self {
        Self {
            directories: BTreeMap::new(),
            executor: EXECUTOR_IMAGE.to_owned(),
            host_fallback: true,
        }
    }
}

/// The root file system cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// Text of the kubelet.
    #[error("couldn't parse image name {0:?}: invalid reference format")]
    Name(String),
    #[error("image {0:?} is not in the image table")]
    Unknown(String),
    #[error("image directory {path}: {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("root of the container: {0}")]
    Root(#[from] std::io::Error),
    #[error("copying the image failed: {0}")]
    Copy(String),
}

/// Resolved reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Image {
    Executor,
    Directory(PathBuf),
    Host,
}

impl ImageTable {
    pub(crate) fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        if let Some(directory) = self.directories.get(reference) {
            return Ok(Image::Directory(directory.clone()));
        }
        if reference == self.executor {
            return Ok(Image::Executor);
        }
        if !reference::is_valid(reference) {
            return Err(ImageError::Name(reference.to_owned()));
        }
        if self.host_fallback {
            return Ok(Image::Host);
        }
        Err(ImageError::Unknown(reference.to_owned()))
    }
}

/// Process defaults of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageDefaults {
    pub uid: u32,
    pub gid: u32,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    /// Home directories by uid.
    pub homes: BTreeMap<u32, String>,
}

impl ImageDefaults {
    pub(crate) fn host() -> Self {
        Self {
            uid: 0,
            gid: 0,
            command: Vec::new(),
            environment: vec![("PATH".into(), PATH.into())],
            directory: "/".into(),
            homes: BTreeMap::from([(0, "/root".into()), (OPENHANDS, "/home/openhands".into())]),
        }
    }

    pub(crate) fn group_of(&self, uid: u32) -> u32 {
        match uid {
            _ if uid == self.uid => self.gid,
            OPENHANDS => OPENHANDS,
            _ => 0,
        }
    }

    pub(crate) fn home_of(&self, uid: u32) -> &str {
        self.homes.get(&uid).map_or("/", String::as_str)
    }
}

/// Pod data for the files in the container's `/etc`.
#[derive(Debug, Clone)]
pub(crate) struct PodIdentity {
    pub hostname: String,
    pub address: String,
    pub resolv_conf: String,
    /// User of the node, for `/etc/passwd` under a non-root node.
    pub node: NodeUser,
}

impl Image {
    /// Reads the image's defaults, before its root is built.
    pub(crate) fn defaults(&self) -> Result<ImageDefaults, ImageError> {
        match self {
            Self::Executor => Ok(ImageDefaults {
                command: vec!["/sandbox-executor".into()],
                homes: BTreeMap::new(),
                ..ImageDefaults::host()
            }),
            Self::Host => Ok(ImageDefaults::host()),
            Self::Directory(path) => directory::defaults(path),
        }
    }

    /// Builds the private parts of the root in the empty directory `scratch`.
    pub(crate) fn root(
        &self,
        scratch: &Path,
        executor: &Path,
        pod_identity: &PodIdentity,
    ) -> Result<Vec<Mount>, ImageError> {
        std::fs::create_dir_all(scratch)?;
        match self {
            Self::Executor => Ok(vec![Mount::Bind {
                from: executor.to_owned(),
                to: "/sandbox-executor".into(),
                writable: false,
            }]),
            Self::Host => Ok(host_root::root(scratch, pod_identity)?),
            Self::Directory(path) => directory::root(path, scratch, pod_identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_matches_exactly_and_falls_back_to_host() {
        let mut table = ImageTable::default();
        table.directories.insert("a:1".into(), "/images/a".into());
        assert_eq!(
            table.resolve("a:1").unwrap(),
            Image::Directory("/images/a".into())
        );
        assert_eq!(table.resolve(EXECUTOR_IMAGE).unwrap(), Image::Executor);
        assert_eq!(table.resolve("a:2").unwrap(), Image::Host);
        assert!(matches!(table.resolve("A b"), Err(ImageError::Name(_))));
        table.host_fallback = false;
        assert!(matches!(table.resolve("a:2"), Err(ImageError::Unknown(_))));
    }

    #[test]
    fn image_defaults_have_groups_and_homes() {
        let host = ImageDefaults::host();
        assert_eq!(
            (host.group_of(0), host.group_of(1000), host.group_of(7)),
            (0, 1000, 0)
        );
        assert_eq!(
            (host.home_of(1000), host.home_of(7)),
            ("/home/openhands", "/")
        );
    }
}
