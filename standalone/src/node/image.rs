//! Image references and root file systems: a pulled image, an unpacked directory, the executor's
//! own image, or the host.

mod directory;
mod etc_files;
mod host_root;
mod kept;
mod pulled;
mod users;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use images::{PullError, Reference};
use operator::image_reference::is_image_reference;
use rustix::process::Signal;

pub(crate) use self::users::Account;

use super::mount::Mount;
use super::node_user::NodeUser;

/// Reference of the image that contains only the executor.
const EXECUTOR_IMAGE: &str = "localhost/sandbox-executor:dev";

/// Reference of the image that has this machine's programs.
pub const HOST_IMAGE: &str = "host";

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Uid and gid of `openhands`, the user of agents.
const OPENHANDS: u32 = 1000;

/// Image references and their root file systems.
#[derive(Debug, Clone, Default)]
pub struct ImageTable {
    /// References to unpacked directories: a root, or an OCI bundle (`rootfs`, `config.json`).
    pub directories: BTreeMap<String, PathBuf>,
    /// True if every other reference uses the host's own programs, and nothing is pulled.
    pub host_fallback: bool,
}

/// The root file system cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// Text of the kubelet.
    #[error("couldn't parse image name {0:?}: invalid reference format")]
    Name(String),
    /// Texts of the kubelet.
    #[error("Container image {0:?} is not present with pull policy of Never")]
    Never(String),
    #[error("failed to pull image {0:?}: {1}")]
    Pull(String, Arc<PullError>),
    #[error("pulled images need a node that runs as root")]
    NotRoot,
    #[error("image store: {0}")]
    Store(#[from] images::StoreError),
    #[error("pull secret {0}: {1}")]
    PullSecret(String, String),
    #[error("image has a symbolic link at {0}, where this node mounts")]
    Link(PathBuf),
    #[error("image has no user {0:?}")]
    User(String),
    #[error("image has no group {0:?}")]
    Group(String),
    #[error("stop signal {0:?} of the image is unknown")]
    StopSignal(String),
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

/// Image of which a root can be built.
#[derive(Debug, Clone)]
pub(crate) enum Image {
    Executor,
    Directory(PathBuf),
    Host,
    Pulled(Arc<images::Image>),
}

/// Resolved reference.
#[derive(Debug, Clone)]
pub(crate) enum ImageSource {
    /// There without a registry.
    Local(Image),
    Registry(Reference),
}

impl ImageTable {
    /// Root directory of an image that is copied.
    pub(crate) fn unpacked(&self, reference: &str) -> Option<PathBuf> {
        let image = self.directories.get(reference);
        image.map(|image| directory::root_of(image))
    }

    /// True if the host's programs stand in for the image of this name.
    pub(crate) fn is_replaced(&self, reference: &str) -> bool {
        let resolved = self.resolve(reference);
        reference != HOST_IMAGE && matches!(resolved, Ok(ImageSource::Local(Image::Host)))
    }

    pub(crate) fn resolve(&self, reference: &str) -> Result<ImageSource, ImageError> {
        if let Some(directory) = self.directories.get(reference) {
            return Ok(ImageSource::Local(Image::Directory(directory.clone())));
        }
        match reference {
            EXECUTOR_IMAGE => return Ok(ImageSource::Local(Image::Executor)),
            HOST_IMAGE => return Ok(ImageSource::Local(Image::Host)),
            _ => {}
        }
        // As the kubelet does, so that a manifest that works here does not fail in a cluster.
        if !is_image_reference(reference) {
            return Err(ImageError::Name(reference.to_owned()));
        }
        if self.host_fallback {
            return Ok(ImageSource::Local(Image::Host));
        }
        let parsed = reference.parse().map(ImageSource::Registry);
        parsed.map_err(|_| ImageError::Name(reference.to_owned()))
    }
}

/// Process defaults of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageDefaults {
    pub uid: u32,
    pub gid: u32,
    /// Name of the user, if the image does not give its number.
    pub user_name: Option<String>,
    pub entrypoint: Vec<String>,
    /// Arguments of the entrypoint.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub directory: PathBuf,
    pub stop_signal: Signal,
    /// Users by number.
    pub accounts: BTreeMap<u32, Account>,
}

impl ImageDefaults {
    pub(crate) fn host() -> Self {
        let account = |id, home: &str| {
            let account = Account {
                gid: id,
                home: home.into(),
                groups: Vec::new(),
            };
            (id, account)
        };
        let accounts = [account(0, "/root"), account(OPENHANDS, "/home/openhands")];
        Self {
            uid: 0,
            gid: 0,
            user_name: None,
            entrypoint: Vec::new(),
            arguments: Vec::new(),
            environment: vec![("PATH".into(), PATH.into())],
            directory: "/".into(),
            stop_signal: Signal::TERM,
            accounts: BTreeMap::from(accounts),
        }
    }

    pub(crate) fn group_of(&self, uid: u32) -> u32 {
        if uid == self.uid {
            return self.gid;
        }
        self.accounts.get(&uid).map_or(0, |account| account.gid)
    }

    /// Supplementary groups of a user.
    pub(crate) fn groups_of(&self, uid: u32) -> &[u32] {
        let account = self.accounts.get(&uid);
        account.map_or(&[], |account| account.groups.as_slice())
    }

    pub(crate) fn home_of(&self, uid: u32) -> &str {
        let account = self.accounts.get(&uid);
        account.map_or("/", |account| account.home.as_str())
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
                entrypoint: vec!["/sandbox-executor".into()],
                accounts: BTreeMap::new(),
                ..ImageDefaults::host()
            }),
            Self::Host => Ok(ImageDefaults::host()),
            Self::Directory(path) => directory::defaults(path),
            Self::Pulled(image) => pulled::defaults(image),
        }
    }

    /// Builds the private parts of the root in the empty directory `scratch`. `owner` gives the
    /// host's id of an id of the container.
    pub(crate) fn root(
        &self,
        scratch: &Path,
        executor: &Path,
        pod_identity: &PodIdentity,
        owner: impl Fn(u32) -> u32,
    ) -> Result<Vec<Mount>, ImageError> {
        std::fs::create_dir_all(scratch)?;
        match self {
            Self::Executor => {
                let executor = Mount::Bind {
                    from: executor.to_owned(),
                    to: "/sandbox-executor".into(),
                    writable: false,
                };
                Ok(vec![empty_root(scratch)?, executor])
            }
            Self::Host => {
                let parts = host_root::root(scratch, pod_identity)?;
                Ok([vec![empty_root(scratch)?], parts].concat())
            }
            Self::Directory(path) => directory::root(path, scratch, pod_identity),
            Self::Pulled(image) => pulled::root(image, scratch, pod_identity, owner),
        }
    }

    /// Replaces the mount point of a volume by its place in the image, if links lead elsewhere:
    /// bubblewrap would follow them out of the image.
    pub(crate) fn place(&self, mount: &mut Mount) -> Result<(), ImageError> {
        if let (
            Self::Pulled(image),
            Mount::Bind { to, .. } | Mount::Volume { to, .. } | Mount::Host { to, .. },
        ) = (self, mount)
        {
            *to = image.resolve(to)?;
        }
        Ok(())
    }
}

/// Root for mount points, on disk: that of bubblewrap is in memory, and has no limit.
fn empty_root(scratch: &Path) -> std::io::Result<Mount> {
    let from = scratch.join("root-of-mounts");
    std::fs::create_dir(&from)?;
    std::fs::set_permissions(&from, Permissions::from_mode(0o755))?;
    Ok(Mount::Bind {
        from,
        to: "/".into(),
        writable: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_matches_names_exactly_and_pulls_the_others() {
        let mut table = ImageTable::default();
        table.directories.insert("a:1".into(), "/images/a".into());
        let resolved = |table: &ImageTable, reference: &str| {
            let resolved = table.resolve(reference);
            resolved.map_or_else(|error| error.to_string(), |found| format!("{found:?}"))
        };
        for (reference, expected) in [
            ("a:1", "Local(Directory(\"/images/a\"))"),
            (EXECUTOR_IMAGE, "Local(Executor)"),
            ("host", "Local(Host)"),
            (
                "A b",
                "couldn't parse image name \"A b\": invalid reference format",
            ),
        ] {
            assert_eq!(resolved(&table, reference), expected);
        }
        let ImageSource::Registry(pulled) = table.resolve("a:2").unwrap() else {
            panic!("not pulled");
        };
        assert_eq!(pulled.whole(), "docker.io/library/a:2");
        table.host_fallback = true;
        assert_eq!(resolved(&table, "a:2"), "Local(Host)");
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
