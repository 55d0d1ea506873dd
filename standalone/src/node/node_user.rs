//! User of the node process.

/// Effective uid and gid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeUser {
    pub uid: u32,
    pub gid: u32,
}

impl NodeUser {
    pub(crate) fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }
}
