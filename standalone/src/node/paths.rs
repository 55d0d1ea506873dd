//! Paths in the state directory, and the tag that marks everything outside of it: interfaces,
//! firewall table, cgroup, shared memory.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Layout of one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    state: PathBuf,
    /// The path's hash in 20 bits.
    pub hash: u32,
    /// The hash as five hexadecimal digits; short, because interface names are.
    pub tag: String,
}

impl Paths {
    pub(crate) fn new(state_dir: &Path) -> Self {
        let state = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let state = state.canonicalize().unwrap_or(state);
        let hash = digest(&SHA256, state.as_os_str().as_encoded_bytes());
        let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
        let hash = u32::from_be_bytes(first) >> 12;
        Self {
            state,
            hash,
            tag: format!("{hash:05x}"),
        }
    }

    pub(crate) fn pods(&self) -> PathBuf {
        self.state.join("pods")
    }

    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// Content of the executor's image.
    pub(crate) fn executor(&self) -> PathBuf {
        self.state.join("executor")
    }

    pub(crate) fn logs(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("logs")
    }

    /// Link from a Pod's name to the logs of the current Pod of that name.
    pub(crate) fn log_link(&self, namespace: &str, pod: &str) -> PathBuf {
        self.state.join("logs").join(namespace).join(pod)
    }

    /// Directories of claims, by uid.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.state.join("volumes")
    }

    /// Directory of memory-backed volumes; on disk if the host has no shared memory. Its name has a
    /// random part, so that no other user can create it beforehand.
    pub(crate) fn memory(&self) -> PathBuf {
        let recorded = fs::read_to_string(self.memory_record());
        recorded.map_or_else(|_| self.state.join("memory"), PathBuf::from)
    }

    /// Creates the directory of memory-backed volumes, unless an earlier run has.
    pub(crate) fn create_memory(&self) -> io::Result<()> {
        let is_own = |path: &Path| {
            let metadata = fs::symlink_metadata(path);
            let user = rustix::process::geteuid().as_raw();
            metadata.is_ok_and(|found| found.is_dir() && found.uid() == user)
        };
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() || is_own(&self.memory()) {
            return Ok(());
        }
        let mut random = [0; 8];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| io::Error::other("cannot read random bytes"))?;
        let random = u64::from_ne_bytes(random);
        let path = shared.join(format!("sandbox-standalone-{}-{random:016x}", self.tag));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        fs::write(self.memory_record(), path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn remove_memory(&self) {
        remove_tree(&self.memory());
        let _ = fs::remove_file(self.memory_record());
    }

    fn memory_record(&self) -> PathBuf {
        self.state.join("memory-volumes")
    }

    /// Directory of the mounts that are mapped into a user namespace.
    pub(crate) fn mapped_mounts(&self, namespace: &str) -> PathBuf {
        Path::new("/run").join(format!("sandbox-standalone-{}{namespace}", self.tag))
    }

    /// Private roots of a Pod's containers.
    pub(crate) fn roots(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("roots")
    }

    pub(crate) fn root(&self, uid: &str, container: &str) -> PathBuf {
        self.roots(uid).join(container)
    }

    /// Volumes of a Pod that are neither claims nor memory.
    pub(crate) fn pod_volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// Lock file of the process that runs this node.
    pub(crate) fn lock(&self) -> PathBuf {
        self.state.join("node.lock")
    }

    pub(crate) fn cgroup_record(&self) -> PathBuf {
        self.state.join("cgroups")
    }
}

/// Removes a tree of any depth. A failure is logged; the next start tries again.
pub(crate) fn remove_tree(path: &Path) {
    let removed = images::remove_tree(path).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            open_up(path);
            images::remove_tree(path)
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
