//! Image references and root file systems. There is no registry: an image is an unpacked directory,
//! the executor's own image, or the host.

mod directory;
mod etc_files;
mod host_root;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use operator::image_reference::is_image_reference;

use super::mount::Mount;
use super::node_user::NodeUser;

/// Reference of the image that contains only the executor.
const EXECUTOR_IMAGE: &str = "localhost/sandbox-executor:dev";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Uid and gid of `openhands`, the user of agents.
const OPENHANDS: u32 = 1000;

/// Image references and their root file systems.
#[derive(Debug, Clone)]
pub struct ImageTable {
    /// References to unpacked directories: a root, or an OCI bundle (`rootfs`, `config.json`).
    pub directories: BTreeMap<String, PathBuf>,
    /// True if every other reference uses the host's own programs.
    pub host_fallback: bool,
}

impl Default for ImageTable {
    fn default() -> Self {
        Self {
            directories: BTreeMap::new(),
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
    #[error("no --image names {0:?}, and --no-host-image is set")]
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
    /// Root directory of an image that is copied.
    pub(crate) fn unpacked(&self, reference: &str) -> Option<PathBuf> {
        let image = self.directories.get(reference);
        image.map(|image| directory::root_of(image))
    }

    pub(crate) fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        if let Some(directory) = self.directories.get(reference) {
            return Ok(Image::Directory(directory.clone()));
        }
        if reference == EXECUTOR_IMAGE {
            return Ok(Image::Executor);
        }
        // As the kubelet does, so that a manifest that works here does not fail in a cluster.
        if !is_image_reference(reference) {
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
        for (reference, image) in [
            ("a:1", Image::Directory("/images/a".into())),
            (EXECUTOR_IMAGE, Image::Executor),
            ("a:2", Image::Host),
        ] {
            assert_eq!(table.resolve(reference).unwrap(), image);
        }
        assert!(matches!(table.resolve("A b"), Err(ImageError::Name(_))));
        table.host_fallback = false;
        assert!(matches!(table.resolve("a:2"), Err(ImageError::Unknown(_))));
    }

    #[test]
    fn image_defaults_have_groups_and_homes() {
        let host = ImageDefaults::host();
        let openhands = (1000, 1000, "/home/openhands");
        for (uid, group, home) in [(0, 0, "/root"), openhands, (7, 0, "/")] {
            assert_eq!((host.group_of(uid), host.home_of(uid)), (group, home));
        }
    }

    #[test]
    fn image_references_agree_with_kubelet() {
        let digest = format!("a@sha256:{}", "0f".repeat(32));
        let good = "debian debian:12 ghcr.io/openhands/runtime:0.59-nikolaik localhost/sandbox-test:1 \
            localhost:5000/a Registry.Example.com:5000/a/b__c:V1_x host:5000/a Host/a a.b";
        for good in good.split(' ').chain([digest.as_str()]) {
            assert!(is_image_reference(good), "{good}");
        }
        let long_tag = format!("a:{}", "x".repeat(129));
        let bad = "Debian debian: debian:12:13 a//b /a -a a@sha256:12 https://ghcr.io/a host:port/a \
            \u{fc}";
        let odd = ["", " ", "debian 12", "debian\n", &long_tag];
        for bad in bad.split(' ').chain(odd) {
            assert!(!is_image_reference(bad), "{bad}");
        }
    }
}
