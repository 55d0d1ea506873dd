//! From an image reference to a root file system. There is no registry here: an image is a
//! directory that the user unpacked, the executor's own tiny image, or the host itself.

mod directory;
mod etc;
mod host;
mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::bwrap::Mount;
use super::identity::NodeUser;

/// The executor's image unless configured otherwise.
pub const EXECUTOR_IMAGE: &str = "localhost/sandbox-executor:dev";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// User and group of `openhands`, under which agents work.
const OPENHANDS: u32 = 1000;

/// What each image reference stands for.
#[derive(Debug, Clone)]
pub struct ImageTable {
    /// Exact references to unpacked directories: a root, or an OCI bundle (`rootfs`, `config.json`).
    pub directories: BTreeMap<String, PathBuf>,
    /// The reference of the image that holds only the executor binary.
    pub executor: String,
    /// Whether every other reference means the host's own programs.
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

/// Why there is no root file system.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// In the words of the kubelet.
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

/// A resolved reference.
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

/// What an image says about its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub uid: u32,
    pub gid: u32,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    /// Home directories of known users.
    pub homes: BTreeMap<u32, String>,
}

impl Defaults {
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

/// What the container's own files must know about its Pod.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub hostname: String,
    pub address: String,
    pub resolv_conf: String,
    /// User that runs the container, for `/etc/passwd` under a non-root node.
    pub node: NodeUser,
}

impl Image {
    /// The image's defaults, read before its root is made.
    pub(crate) fn defaults(&self) -> Result<Defaults, ImageError> {
        match self {
            Self::Executor => Ok(Defaults {
                command: vec!["/sandbox-executor".into()],
                homes: BTreeMap::new(),
                ..Defaults::host()
            }),
            Self::Host => Ok(Defaults::host()),
            Self::Directory(path) => directory::defaults(path),
        }
    }

    /// Makes the private parts of the root below `scratch`, which is empty.
    pub(crate) fn root(
        &self,
        scratch: &Path,
        executor: &Path,
        names: &Names,
    ) -> Result<Vec<Mount>, ImageError> {
        std::fs::create_dir_all(scratch)?;
        match self {
            Self::Executor => Ok(vec![Mount::Bind {
                from: executor.to_owned(),
                to: "/sandbox-executor".into(),
                writable: false,
            }]),
            Self::Host => Ok(host::root(scratch, names)?),
            Self::Directory(path) => directory::root(path, scratch, names),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_exact_and_the_rest_is_the_host() {
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
    fn users_have_groups_and_homes() {
        let host = Defaults::host();
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
