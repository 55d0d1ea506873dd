//! Reasons for which a dump or restore fails, in words for users.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// A failed dump or restore. After a failed dump the tree runs on, after a failed restore it is
/// gone.
#[derive(Debug, Error)]
#[error("{reason}")]
pub struct CheckpointError {
    pub reason: FailureReason,
    /// The last lines of CRIU's log, at most 4 KiB, for the log of the caller.
    pub log: String,
}

impl From<FailureReason> for CheckpointError {
    fn from(reason: FailureReason) -> Self {
        Self {
            reason,
            log: String::new(),
        }
    }
}

#[derive(Debug, Error)]
pub enum FailureReason {
    #[error("the program {0} does not exist")]
    ProgramMissing(PathBuf),
    #[error("the container lacks a capability or the kernel refuses a system call")]
    NotPermitted,
    #[error("a process runs under a seccomp filter")]
    SeccompFilter,
    #[error("a process watches files (inotify or fanotify)")]
    WatchedFiles,
    #[error("a process uses io_uring")]
    IoUring,
    #[error("a process uses a device or kernel object that cannot be saved")]
    UnsupportedObject,
    #[error("a process has a namespace of its own")]
    NestedNamespaces,
    #[error("a process is connected to a unix socket of a process outside of the tree")]
    OutsideSocket,
    #[error("a process is being traced by a debugger")]
    Traced,
    #[error("a file that a process uses is missing")]
    MissingFile,
    #[error("a file that a process uses has changed since the dump")]
    FileChanged,
    #[error("a process number of the tree is in use")]
    PidInUse,
    #[error("an address that a process listens on does not exist")]
    AddressMissing,
    #[error("the CPU lacks a feature that the processes use")]
    CpuMismatch,
    #[error("the process to save does not exist")]
    ProcessMissing,
    #[error("no descriptor was given for {0}, whose other end is outside of the tree")]
    DescriptorMissing(String),
    #[error("exceeds the time limit of {} s", .0.as_secs_f32())]
    TimeLimit(Duration),
    #[error("the memory of the processes exceeds the limit of {0} bytes")]
    SizeLimit(u64),
    #[error("the saved processes cannot be read: {0}")]
    ArchiveInvalid(&'static str),
    #[error("stopped by the caller: {0}")]
    Vetoed(String),
    #[error("CRIU failed")]
    Criu,
    /// The first error of CRIU's log, of a kind that is not known.
    #[error("CRIU failed: {0}")]
    Unknown(String),
    #[error("CRIU sent an unexpected message")]
    Protocol,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl FailureReason {
    /// Returns whether CRIU failed in a way that has no reason of its own here.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Criu | Self::Unknown(_))
    }
}

impl From<rustix::io::Errno> for FailureReason {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}
