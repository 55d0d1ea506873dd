//! Paths in the state directory, and the tag that marks everything outside of it: interfaces,
//! firewall table, cgroup, shared memory.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::remove_tree;

/// Layout of one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    state: PathBuf,
    /// Five hexadecimal digits of the path's hash; short, because interface names are.
    pub tag: String,
}

impl Paths {
    pub(crate) fn new(state_dir: &Path) -> Self {
        let state = std::path::absolute(state_dir).unwrap_or_else(|_| state_dir.to_owned());
        let state = state.canonicalize().unwrap_or(state);
        let hash = digest(&SHA256, state.as_os_str().as_encoded_bytes());
        let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
        let tag = format!("{:05x}", u32::from_be_bytes(first) >> 12);
        Self { state, tag }
    }

    pub(crate) fn pods(&self) -> PathBuf {
        self.state.join("pods")
    }

    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
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
        let recorded = std::fs::read_to_string(self.memory_record());
        recorded.map_or_else(|_| self.state.join("memory"), PathBuf::from)
    }

    /// Creates the directory of memory-backed volumes, unless an earlier run has.
    pub(crate) fn create_memory(&self) -> std::io::Result<()> {
        let is_own = |path: &Path| {
            let metadata = std::fs::symlink_metadata(path);
            let user = rustix::process::geteuid().as_raw();
            metadata.is_ok_and(|found| found.is_dir() && found.uid() == user)
        };
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() || is_own(&self.memory()) {
            return Ok(());
        }
        let mut random = [0; 8];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| std::io::Error::other("cannot read random bytes"))?;
        let name = format!(
            "sandbox-standalone-{}-{:016x}",
            self.tag,
            u64::from_ne_bytes(random)
        );
        let path = shared.join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        std::fs::write(self.memory_record(), path.as_os_str().as_encoded_bytes())
    }

    /// Removes the directory of memory-backed volumes.
    pub(crate) fn remove_memory(&self) {
        remove_tree::remove(&self.memory());
        let _ = std::fs::remove_file(self.memory_record());
    }

    fn memory_record(&self) -> PathBuf {
        self.state.join("memory-volumes")
    }

    /// Directory of the mounts that are mapped into the user namespace.
    pub(crate) fn mapped_mounts(&self) -> PathBuf {
        Path::new("/run").join(format!("sandbox-standalone-{}", self.tag))
    }

    /// Private root of a container.
    pub(crate) fn root(&self, uid: &str, container: &str) -> PathBuf {
        self.pod(uid).join("roots").join(container)
    }

    /// Lock file of the process that runs this node.
    pub(crate) fn lock(&self) -> PathBuf {
        self.state.join("node.lock")
    }

    /// Record of the node's cgroup.
    pub(crate) fn cgroup_record(&self) -> PathBuf {
        self.state.join("cgroups")
    }
}
