//! Where the node keeps things, and the tag that marks what belongs to it outside of its state
//! directory: interfaces, firewall table, memory group, shared memory.

use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

/// The layout of one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    state: PathBuf,
    /// Five hexadecimal digits of the state directory's hash: short, because the names of
    /// network interfaces are.
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

    /// Links a name to the logs of the Pod that has the name now.
    pub(crate) fn log_link(&self, namespace: &str, pod: &str) -> PathBuf {
        self.state.join("logs").join(namespace).join(pod)
    }

    /// Directories of claims, by uid.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.state.join("volumes")
    }

    /// Memory-backed volumes; on disk where the host has no shared memory.
    pub(crate) fn memory(&self) -> PathBuf {
        let shared = Path::new("/dev/shm");
        if shared.is_dir() {
            shared.join(format!("sandbox-standalone-{}", self.tag))
        } else {
            self.state.join("memory")
        }
    }

    /// Where containers of a Pod have their private roots.
    pub(crate) fn root(&self, uid: &str, container: &str) -> PathBuf {
        self.pod(uid).join("roots").join(container)
    }

    /// Held by the process that runs this node.
    pub(crate) fn lock(&self) -> PathBuf {
        self.state.join("node.lock")
    }

    /// Remembers where the memory groups were made.
    pub(crate) fn group_record(&self) -> PathBuf {
        self.state.join("memory-group")
    }
}
